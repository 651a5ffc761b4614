"""Measure how well the judge repeats itself on this machine: `python scripts/measure_judge.py --hardware h200 [--times 10]`.

Scores the problem's oracle several times in fresh processes (A/A), and also beside another sandbox, as an agent's would be: an
idle one, and one that is frozen while it keeps every core busy. Prints one table for docs/measurements/judge.md. Needs arena
installed, and a GPU for any hardware but `cpu`. Adds each score to `--json FILE` at once. Scores that the file already holds
count too: `--times 0 --beside 0` prints its table again.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from arena import catalog, judge, paths
from arena.judge.sampling import CPU, GPU, Sampling
from arena.sandboxes import SandboxSpec
from arena.sandboxes.backends import backend
from arena.schema import Hardware, Passed, Problem
from arena.submission import collect

ALONE = "nothing"
BESIDE = {
    "idle": ("sleep", "3600"),
    "frozen": ("sh", "-c", 'for core in $(seq "$(nproc)"); do while :; do :; done & done; wait'),
}
"""Other sandboxes, and what runs in each."""
SETTLE_S = 1.0


def scored(problem: Problem, hardware: Hardware, solution: Path, sampling: Sampling, gpu: int) -> Passed:
    """One score. Any verdict but `passed` ends the measurement."""
    submission = collect(solution.parent, solution.name)
    digest = catalog.problem_digest(problem.name)
    result = judge.score(submission, problem, hardware, digest=digest, sandbox=backend(), sampling=sampling, gpu=gpu)
    if not isinstance(result, Passed):
        sys.exit(f"{solution}: {result.verdict}: {result.message}")
    print(f"  peak_fraction {result.peak_fraction:.4f} in {result.timings.total_s:.1f} s", file=sys.stderr)
    return result


def deviations(fractions: list[float]) -> tuple[float, float]:
    """(largest, median) relative distance from the median."""
    middle = statistics.median(fractions)
    away = [abs(fraction / middle - 1) for fraction in fractions]
    return max(away), statistics.median(away)


def table(results: list[Passed]) -> list[str]:
    """Markdown: one row for each shape, over all scores."""
    rows = [
        "| shape | us among others | longer alone | fraction (median) | largest deviation | median | alone counts | mode |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for number, shape in enumerate(results[0].shapes):
        same = [result.shapes[number] for result in results]
        most, middle = deviations([one.peak_fraction for one in same])
        among_us = statistics.median((one.among_s or one.measured_s) * 1e6 for one in same)
        longer_us = [(one.alone_s - one.among_s) * 1e6 for one in same if one.alone_s and one.among_s]
        longer = f"{statistics.median(longer_us):.1f}, {min(longer_us):.1f} to {max(longer_us):.1f}" if longer_us else ""
        counted = sum(one.measured_s != one.among_s for one in same) if longer_us else ""
        name = " ".join(f"{key}={value}" for key, value in shape.shape.items())
        fraction = statistics.median(one.peak_fraction for one in same)
        row = (name, f"{among_us:.1f}", longer, f"{fraction:.4f}", f"{most:.2%}", f"{middle:.2%}", counted, shape.launch_mode)
        rows.append(f"| {' | '.join(map(str, row))} |")
    most, middle = deviations([result.peak_fraction for result in results])
    score = statistics.median(result.peak_fraction for result in results)
    rows.append(f"| **problem** | | | **{score:.4f}** | {most:.2%} | {middle:.2%} | | |")
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hardware", default="cpu")
    parser.add_argument("--problem", default="paged_attention")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--beside", type=int, default=2, help="scores beside each kind of other sandbox")
    parser.add_argument("--processes", type=int, help="timed processes of each score, instead of the published number")
    parser.add_argument("--gpu", type=int, default=0, help="number of the GPU")
    parser.add_argument("--json", type=Path, help="file that every score is added to")
    options = parser.parse_args()
    problem, hardware = catalog.problem(options.problem), catalog.hardware(options.hardware)
    oracle = catalog.solutions(paths.problems() / problem.name, hardware.profile)["oracle"]
    sampling = replace(GPU if hardware.profile == "gpu" else CPU, counters=False)
    sampling = replace(sampling, processes=options.processes or sampling.processes)

    kept: dict[str, list[Passed]] = {ALONE: [], **{kind: [] for kind in BESIDE}}
    if options.json and options.json.exists():
        for line in options.json.read_text().splitlines():
            record = json.loads(line)
            kept[record["beside"]].append(Passed.model_validate(record["score"]))

    def measure(times: int, beside: str) -> None:
        for _ in range(times):
            result = scored(problem, hardware, oracle, sampling, options.gpu)
            kept[beside].append(result)
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps({"beside": beside, "score": result.model_dump(mode="json")}) + "\n")

    measure(options.times, ALONE)
    for kind, command in BESIDE.items() if options.beside else ():
        with backend().run(SandboxSpec("agent", command, gpu=judge.preflight(hardware, options.gpu))) as other:
            time.sleep(SETTLE_S)
            if kind == "frozen":
                other.freeze()
            measure(options.beside, kind)
    alone = kept[ALONE]
    if not alone:
        sys.exit("no score: give --times, or a --json FILE that holds some")
    device = alone[0].device
    print(f"{device.name}, driver {device.driver}, torch {torch.__version__}, Python {platform.python_version()}\n")
    print("\n".join(table(alone)))
    for kind in BESIDE:
        if kept[kind]:
            change = (
                statistics.median(r.peak_fraction for r in kept[kind]) / statistics.median(r.peak_fraction for r in alone) - 1
            )
            print(f"\nBeside {'an' if kind == 'idle' else 'a'} {kind} sandbox: {change:+.2%} ({len(kept[kind])} scores)")
    spent = [(r.timings.build_s, r.timings.check_s, r.timings.benchmark_s, r.timings.total_s) for r in alone]
    build_s, check_s, benchmark_s, total_s = (statistics.median(column) for column in zip(*spent, strict=True))
    print(f"\nOne score: build {build_s:.1f} s, check {check_s:.1f} s, benchmark {benchmark_s:.1f} s, total {total_s:.1f} s")


if __name__ == "__main__":
    main()
