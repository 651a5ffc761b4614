"""Measure on a GPU what verifying one answer takes, and print how many input sets each problem has room for, on several cards.

`scripts/measure_memory.py [--hardware NAME] [--gpu N] [PROBLEM ...]` prints a table in Markdown. The cards that are not here are
calculated: with the free memory that is assumed below, and what verifying takes on this one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from arena import catalog, plan
from arena.errors import JudgeError
from arena.judge import problem_code
from arena.judge.context import ScoringContext, Stopwatch
from arena.judge.device.detect import open_device
from arena.judge.device.device import OpenDevice
from arena.judge.sets import Seeds
from arena.schema import Problem

CARDS_GB = {"L4": 23.4, "RTX 4090": 25.0, "L40S": 47.6, "H100 80 GB": 84.4, "H200": 149.5}
"""GB (1e9) that are free beside the judge's context: what the driver shows of the card, less 0.7 GB."""


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help="problems to measure (all)")
    parser.add_argument("--hardware", help="name of a hardware file (that of the GPU)")
    parser.add_argument("--gpu", type=int, default=0, help="number of the GPU, as CUDA counts")
    chosen = parser.parse_args()
    hardware = plan.hardware_on(chosen.hardware, chosen.gpu)
    print("| problem | to verify, GB | measured in, s | here | " + " | ".join(CARDS_GB) + " |")
    print("|---|---|---|---|" + "---|" * len(CARDS_GB))
    with open_device(hardware, chosen.gpu) as device:
        for name in chosen.problems or catalog.problem_names():
            print("| " + " | ".join(row(catalog.problem(name), device)) + " |", flush=True)
    return 0


def row(problem: Problem, device: OpenDevice) -> Iterator[str]:
    """One problem's cells."""
    code = problem_code.load(problem, "gpu")
    here = ScoringContext(problem, code, device.record, device.memory, device.sampling, Seeds(), Stopwatch())
    begin_s = time.monotonic()
    verifying_bytes = here.verification_bytes
    yield from (problem.name, f"{verifying_bytes / 1e9:.1f}", f"{time.monotonic() - begin_s:.2f}", sets(here))
    for free_gb in CARDS_GB.values():
        yield sets(replace(here, memory=assumed(device, free_gb, verifying_bytes)))


def assumed(device: OpenDevice, free_gb: float, verifying_bytes: int) -> Any:  # noqa: ANN401  stands in for a Memory
    """A memory of which so much is free, on a card that is not here."""
    return SimpleNamespace(
        device=device.memory.device, free_bytes=lambda: int(free_gb * 1e9), peak_bytes=lambda work: verifying_bytes
    )


def sets(context: ScoringContext) -> str:
    """How many sets of the largest shape there is room for."""
    try:
        return str(min(context.room(shape) for shape in context.problem.timed("gpu")))
    except JudgeError as refusal:
        return f"refused: {refusal}"


if __name__ == "__main__":
    raise SystemExit(main())
