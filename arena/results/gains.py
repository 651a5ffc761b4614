"""Gain over the naive kernel: `log2(max(fraction, naive) / naive)` of each counted trial, and means of it.

A failed trial keeps the naive kernel, which is no gain. So gain has a mean over problems with failures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from statistics import median as middle
from typing import NamedTuple

from arena.results.board import NOT_COUNTED, Interval, Naive, Ratio, Trial
from arena.results.statistics import LEVEL, rounded
from arena.schema import Baselines

Samples = Sequence[Sequence[float]]
"""Values of the trials, one sequence per problem."""


def naive(runs: Iterable[Trial], baselines: Baselines | None) -> Naive | None:
    """The naive kernel of a problem, by the built-in model's runs, or by what is stored of the same state of the problem."""
    if numbers := fractions(runs):
        return Naive(fraction=middle(numbers), source="runs")
    lines = {line.name: line for line in baselines.lines if line.verdict == "passed" and line.fraction} if baselines else {}
    if (line := lines.get("naive")) and line.reference and line.fraction:
        return Naive(fraction=line.fraction, source="naive")
    if (line := lines.get("eager")) and line.fraction:
        return Naive(fraction=line.fraction, source="eager")
    return None


def gain(fraction: float | None, naive: Naive) -> float:
    """log2 of the gain of a trial; `fraction` None: it failed."""
    return math.log2(max(fraction or 0.0, naive.fraction) / naive.fraction)


def number(trial: Trial) -> float | None:
    """The fraction of a passed trial."""
    return trial.peak_fraction if trial.outcome == "passed" else None


def fractions(trials: Iterable[Trial]) -> list[float]:
    """The fraction of each passed trial."""
    return list(filter(None, map(number, trials)))


def counted(trials: Iterable[Trial]) -> list[Trial]:
    """Those that passed or failed."""
    return [trial for trial in trials if trial.outcome not in NOT_COUNTED]


def gains(trials: Iterable[Trial], naive: Naive) -> list[float]:
    """log2 of the gain of each counted trial."""
    return [gain(number(trial), naive) for trial in counted(trials)]


def variance(values: Sequence[float]) -> float:
    """Of a sample. `statistics.variance` works with fractions, and takes ten times as long."""
    if min(values) == max(values):
        return 0.0  # the mean of equal floats may differ from them
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


class Mean(NamedTuple):
    """A mean over problems of equal weight, or the difference of two, with what the trials' noise adds to its variance."""

    value: float
    variance: float | None
    """None where some cell has one trial only."""
    fourth: float
    """Sum of squares of the cells' parts of the variance, each divided by its degrees of freedom."""

    @property
    def error(self) -> float | None:
        """Its standard error; None where it is unknown, or no trial differs."""
        return math.sqrt(self.variance) if self.variance else None

    @property
    def freedom(self) -> float:
        """Welch and Satterthwaite's degrees of freedom of that error."""
        return self.variance**2 / self.fourth if self.variance else 0.0

    def less(self, other: Mean) -> Mean:
        """The difference of two means over the same problems."""
        known = self.variance is not None and other.variance is not None
        total = (self.variance or 0.0) + (other.variance or 0.0) if known else None
        return Mean(self.value - other.value, total, self.fourth + other.fourth)


def mean(cells: Samples) -> Mean:
    """The mean over trials, then over problems."""
    value, count = fmean(map(fmean, cells)), len(cells)
    if any(len(cell) < 2 for cell in cells):
        return Mean(value, None, 0.0)
    parts = [(variance(cell) / len(cell) / count**2, len(cell) - 1) for cell in cells]
    return Mean(value, sum(part for part, _ in parts), sum(part**2 / degrees for part, degrees in parts))


def apart(left: Samples, right: Samples) -> Mean:
    """The difference of two rows over the same problems, with the variance it has where trials are exchanged within problems.

    It includes the difference itself, so a problem whose trials are equal in each row, all passed in one and all failed in the
    other, is not without variance. Problems where no trial differs add no freedom.
    """
    variances, degrees = [], 0
    for a, b in zip(left, right, strict=True):
        pooled = variance([*a, *b])
        variances.append(pooled * (1 / len(a) + 1 / len(b)))
        degrees += (len(a) + len(b) - 1) * (pooled > 0)
    total = sum(variances) / len(variances) ** 2
    value = fmean(map(fmean, left)) - fmean(map(fmean, right))
    return Mean(value, total, total**2 / degrees if degrees else 0.0)


def over_naive(cells: Samples) -> Ratio:
    """The gain of a row over these problems. No row has less than 1, so no interval begins below."""
    found = _ratio(mean(cells), [fmean(cell) for cell in cells])
    return found.model_copy(update={name: _from_one(getattr(found, name)) for name in ("on_these", "on_others")})


def between(left: Samples, right: Samples) -> Ratio:
    """The left row's mean over the right row's, as a ratio: 2 to the difference of means of log2."""
    return _ratio(mean(left).less(mean(right)), [fmean(a) - fmean(b) for a, b in zip(left, right, strict=True)])


def _ratio(found: Mean, by_problem: Sequence[float]) -> Ratio:
    """With both intervals, of values of log2."""
    count = len(by_problem)
    spread = math.sqrt(variance(by_problem) / count) if count > 2 else 0.0
    return Ratio(
        value=rounded(2**found.value),
        problems=count,
        on_these=_interval(found.value, found.error, found.freedom) if found.error else None,
        on_others=_interval(found.value, spread, count - 1) if spread else None,
    )


def _from_one(interval: Interval | None) -> Interval | None:
    return interval and interval.model_copy(update={"low": max(1.0, interval.low)})


def _interval(value: float, error: float, freedom: float) -> Interval:
    """The interval of 2 to a value of log2, by Student's t."""
    from scipy.special import stdtrit  # Student's quantile; scipy.stats takes half a second to import

    half = float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
    return Interval(low=rounded(2 ** (value - half)), high=rounded(2 ** (value + half)), level=LEVEL)
