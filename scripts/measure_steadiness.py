"""Measure how far the timings of one score lie apart, on a quiet machine and beside busy loops: the evidence for `unsteady`.

    python scripts/measure_steadiness.py [--hardware cpu] [--problem paged_attention] [--times 3] [--busy 0 1 2] [--json FILE]

Scores the problem's oracle, or --solution FILE, and prints a Markdown table with a row for each score. `load` is the load
average of the minute before, `others` how many cores all other processes of the machine kept busy meanwhile, apart from the
busy loops. Adds each score to `--json FILE` at once.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from arena import catalog, judge, paths
from arena.judge.sampling import CPU, GPU
from arena.sandboxes.backends import backend
from arena.schema import Hardware, Passed, Problem
from arena.submission import collect

BUSY = "while True: pass"
SETTLE_S = 5.0
"""Pause before each score, so that the last one's processes are gone."""


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """That many processes that compute without end, on any core."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def busy_s() -> float:
    """CPU seconds that processes of this machine have used, all cores together."""
    user, nice, system, _, _, irq, soft_irq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + soft_irq) / os.sysconf("SC_CLK_TCK")


def own_s() -> float:
    """CPU seconds of this process and of its descendants that have ended."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def scored(problem: Problem, hardware: Hardware, solution: Path) -> Passed:
    """One score. Any verdict but `passed` ends the measurement."""
    sampling = replace(GPU if hardware.profile == "gpu" else CPU, counters=False)
    submission = collect(solution.parent, solution.name)
    digest = catalog.problem_digest(problem.name)
    result = judge.score(submission, problem, hardware, digest=digest, sandbox=backend(), sampling=sampling)
    if not isinstance(result, Passed):
        sys.exit(f"{solution}: {result.verdict}: {result.message}")
    return result


def line(result: Passed, busy: int, load: float, others: float) -> str:
    """One score as a row: its number, and the widest interval and the farthest processes of its shapes."""
    half_width = max(shape.half_width() for shape in result.shapes)
    apart = max(shape.apart() for shape in result.shapes)
    mark = f"yes, {sum(shape.unsteady for shape in result.shapes)} of {len(result.shapes)} shapes" if result.unsteady else "no"
    machine = f"{busy} | {load:.2f} | {others:.2f}"
    return f"| {result.problem} | {machine} | {result.peak_fraction:.4f} | {half_width:.1%} | {apart:.1%} | {mark} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hardware", default="cpu")
    parser.add_argument("--problem", default="paged_attention")
    parser.add_argument("--solution", type=Path, help="instead of the problem's oracle")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2], help="numbers of busy loops beside the scores")
    parser.add_argument("--json", type=Path, help="file that every score is added to")
    options = parser.parse_args()
    problem, hardware = catalog.problem(options.problem), catalog.hardware(options.hardware)
    solution = options.solution or catalog.solutions(paths.problems() / problem.name, hardware.profile)["oracle"]
    print("| problem | busy loops | load | others | peak_fraction | widest ± | processes apart | unsteady |")
    print("|---|---|---|---|---|---|---|---|")
    for _ in range(options.times):
        for busy in options.busy:  # in turn, so that a change of the machine falls on all of them
            time.sleep(SETTLE_S)
            load, begin_s, all_s, ours_s = os.getloadavg()[0], time.monotonic(), busy_s(), own_s()
            with busy_loops(busy):
                result = scored(problem, hardware, solution)
            others = (busy_s() - all_s - (own_s() - ours_s)) / (time.monotonic() - begin_s)
            print(line(result, busy, load, others), flush=True)
            if options.json:
                with options.json.open("a") as file:
                    file.write(
                        json.dumps({"busy": busy, "load": load, "others": others, "score": result.model_dump(mode="json")}) + "\n"
                    )


if __name__ == "__main__":
    main()
