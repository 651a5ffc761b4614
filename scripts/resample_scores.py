"""How far times of one kernel among others would lie apart, made otherwise: `python scripts/resample_scores.py FILE ...`.

Reads what `measure_judge.py --json FILE` wrote. All processes of all scores are one pool for each shape, from which series of ten
scores are drawn. Prints, for several ways and numbers of processes, a series' largest and median deviation of a shape from its
median, and how many series keep the aim of 1 % and 0.2 %. Needs no GPU.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median

from measure_judge import ALONE, deviations

from arena.schema import Passed

SERIES, SCORES = 400, 10
FAR = 0.1
"""Relative distance from the median of all, beyond which a process is left out."""
LARGEST, MEDIAN = 0.01, 0.002
Samples = Sequence[Sequence[float]]
"""Seconds per call of the windows of each process."""


def mean_of_near(processes: Samples) -> float:
    """The mean of the processes' medians without those that are far off."""
    times = [median(each) for each in processes]
    return fmean([time for time in times if abs(time - median(times)) <= FAR * median(times)] or [median(times)])


WAYS: dict[str, Callable[[Samples], float]] = {
    "median of processes": lambda processes: median(median(each) for each in processes),
    "mean of processes": lambda processes: fmean(median(each) for each in processes),
    "mean without those far off": mean_of_near,
}


def series(pools: Sequence[Samples], processes: int, way: Callable[[Samples], float], dice: random.Random) -> list[float]:
    """The deviations of one series, of all its shapes."""
    away = []
    for pool in pools:
        times = [way(dice.choices(pool, k=processes)) for _ in range(SCORES)]
        away += [abs(time / median(times) - 1) for time in times]
    return away


def main() -> None:
    """Print one table."""
    lines = [json.loads(line) for name in sys.argv[1:] for line in Path(name).read_text().splitlines()]
    scores = [Passed.model_validate(line["score"]) for line in lines if line["beside"] == ALONE]
    if not scores:
        sys.exit("name files that `scripts/measure_judge.py --json FILE` wrote, with scores by themselves")
    pools = [[run for score in scores for run in score.shapes[at].samples_s] for at in range(len(scores[0].shapes))]
    for shape, pool in zip(scores[0].shapes, pools, strict=True):
        largest, middle = deviations([median(run) for run in pool])
        print(f"{shape.shape}: {len(pool)} processes, {largest:.2%} and {middle:.2%} from their median")
    print("\n| processes | time | largest deviation, mean of series | median | within both aims |\n|---|---|---|---|---|")
    for processes in (3, 5, 7):
        for name, way in WAYS.items():
            dice = random.Random(0)
            found = [series(pools, processes, way, dice) for _ in range(SERIES)]
            kept = sum(max(away) <= LARGEST and median(away) <= MEDIAN for away in found) / SERIES
            largest, middle = fmean(map(max, found)), fmean(map(median, found))
            print(f"| {processes} | {name} | {largest:.2%} | {middle:.2%} | {kept:.0%} |")


if __name__ == "__main__":
    main()
