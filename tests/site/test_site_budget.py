"""What the site may take: a transcript of 64 MiB, and the runs of a large benchmark.

Times are processor time: a build is one process that waits for nothing, so it takes this long on a machine that is free.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sites import baseline, home, passed, render, run_files

from arena.agents.trajectory import KEPT_BYTES
from arena.schema import Annotation
from arena.site import steps

pytestmark = pytest.mark.slow
PAGE_BYTES = 2_000_000
PROBLEMS = ("fp8_gemm", "kahan_softmax", "kda_cutlass", "paged_attention", "sonic_moe_swiglu", "topk_bitonic", "w4a16_gemm")
RENDER = """
import resource, sys
from pathlib import Path
from arena.site import build, results
home, out = map(Path, sys.argv[1:])
folders = {name: home / name for name in ("annotations", "baselines", "curves", "workspaces")}
build.build(results.read(folders, shown="all", source=True), out)
used = resource.getrusage(resource.RUSAGE_SELF)
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
# Not ru_maxrss: before this program began, that was its parent's.
print(used.ru_utime + used.ru_stime, status["VmHWM"].split()[0])
"""


def largest(folder: Path) -> int:
    return max(path.stat().st_size for path in folder.rglob("*.html"))


@pytest.mark.parametrize(
    ("characters", "kind"), [(100_000, "a"), (12_000, "\u202e"), (4_000, "&"), (2, "x")], ids=["long", "bidi", "escaped", "tiny"]
)
def test_a_transcript_of_64_mib(tmp_path: Path, characters, kind):
    run = passed(1)
    made = home(tmp_path / "home", [run])
    folder = run_files(made, run, [])
    call = json.dumps({"at_s": 1.5, "kind": "call", "id": "a", "tool": "t", "input": {"text": kind * characters}}) + "\n"
    result = json.dumps({"at_s": 1.5, "kind": "result", "id": "a", "output": kind * characters, "ok": True}) + "\n"
    pair = call + result
    with (folder / "trajectory.jsonl").open("w") as file:
        for _ in range(KEPT_BYTES // len(pair)):
            file.write(pair)
    start_s = time.process_time()
    written = render(made, tmp_path / "site")
    assert time.process_time() - start_s < 60
    assert largest(tmp_path / "site") < PAGE_BYTES
    shown = sum(
        (tmp_path / "site" / name).read_text().count('class="step ') for name in written if name.startswith(f"r/{run.run_id}/t")
    )
    assert shown == min(KEPT_BYTES // len(pair), steps.MOST_STEPS)


@pytest.mark.timeout(900)
def test_five_hundred_runs_of_each_of_seven_problems(tmp_path: Path):
    def one(number: int, problem: str) -> Annotation:
        return passed(number, 0.01 + number / 600, problem=problem, harness="claude", model=f"model-{number}", effort="high")

    runs = [one(number, problem) for problem in PROBLEMS for number in range(500)]
    made = home(tmp_path / "home", runs, [baseline(problem=problem) for problem in PROBLEMS])
    done = subprocess.run(
        [sys.executable, "-c", RENDER, made, tmp_path / "site"], env=os.environ, capture_output=True, text=True, check=True
    )
    used_s, peak_bytes = float(done.stdout.split()[0]), int(done.stdout.split()[1]) * 1024
    print(f"{used_s:.0f} s, {peak_bytes / 1e6:.0f} MB, index {(tmp_path / 'site' / 'index.html').stat().st_size} bytes")
    assert used_s < 180
    assert peak_bytes < 1_000_000_000
    assert (tmp_path / "site" / "index.html").stat().st_size < 1_000_000
    assert largest(tmp_path / "site") < PAGE_BYTES
