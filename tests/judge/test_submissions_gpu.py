"""On a GPU: every honest, wrong and cheating submission gets its verdict, and none that cheats scores above its honest twin."""

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

pytest.importorskip("torch")

from submission import read

from arena import catalog, judge, paths
from arena.judge.sampling import GPU
from arena.sandboxes import bwrap
from arena.schema import Passed, VendorLibrary
from arena.submission import Submission, collect

pytestmark = [pytest.mark.gpu, pytest.mark.timing]

QUICK = replace(GPU, processes=1, repeats=0, counters=False)
HERE = Path(__file__).parents[1] / "submissions_gpu"
OURS = paths.problems() / "paged_attention" / "solutions"
MARGIN = 1.02
OWN = [path for stem, path in catalog.solutions(OURS.parent, "gpu").items() if stem.startswith(("wrong_", "cheat_"))]
"""The problem's own wrong and cheating solutions for a GPU."""


def scored(submission, latency=()):
    import torch

    problem = catalog.problem("paged_attention")
    # Two shapes that differ in everything are enough for a verdict, and a shape costs seconds.
    problem = problem.model_copy(update={"shapes": {"gpu": problem.shapes["gpu"][1::3]}, "latency": {"gpu": latency}})
    problem = problem.model_copy(update={"absent_libraries": get_args(VendorLibrary)})
    hardware = catalog.hardware_of(torch.cuda.get_device_name())
    return judge.score(submission, problem, hardware, digest="", sandbox=bwrap, sampling=QUICK)


@cache
def honest():
    return scored(collect(paths.problems() / "paged_attention" / "solutions", "oracle_gpu.py"))


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_verdict_of_the_problems_own_solutions(path):
    submission, wanted = read(path)
    result = scored(submission)
    print(result.verdict, result.message)
    assert result.verdict == wanted, result.message


@pytest.mark.parametrize("path", sorted(HERE.glob("*.py")), ids=lambda path: path.stem)
def test_verdict(path):
    submission, wanted = read(path)
    result = scored(submission)
    print(
        result.verdict, getattr(result, "peak_fraction", ""), honest().peak_fraction, result.message
    )  # for docs/measurements/judge.md
    if "# at most: honest" in path.read_text().splitlines() and isinstance(result, Passed):
        assert result.peak_fraction <= MARGIN * honest().peak_fraction
        return
    assert result.verdict == wanted, result.message


WAITS_ON_SMALL_ONES = """

honest = solution


def solution(q, *others):
    honest(q, *others)
    if len(q) == 1:
        torch.cuda.synchronize()
"""


@pytest.mark.parametrize(
    ("more", "launch_mode"), [("", "graph"), (WAITS_ON_SMALL_ONES, "stream")], ids=["captured", "not captured"]
)
def test_latency_shapes_have_a_launch_mode_of_their_own(more, launch_mode):
    source = ((OURS / "oracle_gpu.py").read_text() + more).encode()
    small = {"B": 1, "Hq": 32, "Hkv": 8, "D": 128, "mean_len": 512, "page": 16}
    result = scored(Submission(source, hashlib.sha256(source).hexdigest()), latency=(small,))
    assert isinstance(result, Passed), result.message
    [found] = result.latency
    print(found.measured_s, found.alone_s, found.calls_per_window, result.timings)  # for docs/measurements/judge.md
    assert {shape.launch_mode for shape in result.shapes} == {"graph"}
    assert found.launch_mode == launch_mode
    assert not found.vetoed
    assert len(result.evidence) == len(result.shapes)
