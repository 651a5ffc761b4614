"""A score uses no GPU but its own: on another, a second score would be refused as not alone."""

import subprocess
import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from arena.judge import building  # noqa: E402

SCORE_ON_GPU_1 = """
import os, sys, torch
from dataclasses import replace
from arena import catalog, judge, paths
from arena.judge.device import nvml
from arena.judge.sampling import GPU
from arena.plan import hardware_on
from arena.sandboxes.backends import backend
from arena.submission import collect
path = catalog.solutions(paths.problems() / "topk_bitonic", "gpu")["oracle"]
score = judge.score(
    collect(path.parent, path.name), catalog.problem("topk_bitonic"), hardware_on(None, 1),
    digest=catalog.problem_digest("topk_bitonic"), sandbox=backend(), gpu=1,
    sampling=replace(GPU, processes=1, counters=False),
)
with nvml.opened(f"GPU-{torch.cuda.get_device_properties(0).uuid}") as first:
    pids = [process.pid for process in first.ask("ComputeRunningProcesses")]
print(score.verdict, os.getpid() in pids)
"""


def test_every_thread_that_builds_uses_the_scores_gpu() -> None:
    told, built = set[int](), set[int]()
    memory = SimpleNamespace(kind="cuda", use_in_thread=lambda: told.add(threading.get_ident()))
    context: Any = SimpleNamespace(
        memory=memory,
        stopwatch=SimpleNamespace(phase=lambda _: nullcontext()),
        sampling=SimpleNamespace(build_limit_s=1.0),
    )
    together = threading.Barrier(2, timeout=10)

    class Worker:
        def load(self, limit_s: float) -> None:
            built.add(threading.get_ident())
            together.wait()

        def set_aside(self) -> None:
            pass

    workers: Any = [(SimpleNamespace(worker=Worker()), ()) for _ in range(2)]
    building.build(context, workers, None, lambda _: None)
    assert len(built) == 2 and built <= told


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_score_on_the_second_gpu_leaves_the_first() -> None:
    done = subprocess.run([sys.executable, "-c", SCORE_ON_GPU_1], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["passed", "False"], done.stderr
