"""Intervals and estimators of a few trials. Closed forms without resampling: the same trials give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist, variance

from arena.results.board import Interval

LEVEL = 0.95
"""Confidence that an interval has at least, where so few trials allow it."""
DIGITS = 4
SEEN = 0.8
"""How often a difference must show to be one that trials can show."""
ERRORS = NormalDist().inv_cdf((1 + LEVEL) / 2) + NormalDist().inv_cdf(SEEN)
"""A difference of so many standard errors shows that often at that level, where the errors are well known."""
SPREAD, PASS_RATE = 0.7, 0.75
"""Assumed where nothing is on record: the standard deviation of log2 of the fraction of a cell's passed trials; the share that
passes."""
CHOICES = (1, 2, 3, 5, 10)
"""The k of pass@k, all@k and best@k."""


def rounded(value: float) -> float:
    """To four significant digits. Another scipy's Student quantile differs in the eleventh."""
    return float(f"{value:.{DIGITS}g}")


def success(passed: int, counted: int) -> Interval | None:
    """Wilson's interval of the chance that a trial passes. None without a counted trial."""
    if not counted:
        return None
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    share, weight = passed / counted, z * z / counted
    middle = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(share * (1 - share) / counted + weight / counted / 4)
    return _interval(max(0.0, middle - half), min(1.0, middle + half), LEVEL)


def least_trials(half_width: float) -> int:
    """Trials of a cell that always passes, after which half of Wilson's interval is less than that. No cell takes fewer."""
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    return max(1, math.floor(z * z * (1 / (2 * half_width) - 1)) + 1)


def median(numbers: Sequence[float]) -> Interval | None:
    """The interval of the median of what such trials give, between two of the numbers, which assumes nothing about them.

    The closest pair, as far from both ends, that holds the median with 95 %. Below six numbers that is the lowest and the
    highest, with the confidence that they have: 50 % of two, 75 % of three. None for fewer than two.
    """
    count, ordered = len(numbers), sorted(numbers)
    if count < 2:
        return None
    left_out = max((each for each in range(count // 2) if _level(count, each) >= LEVEL), default=0)
    return _interval(ordered[left_out], ordered[-1 - left_out], _level(count, left_out))


def _level(count: int, left_out: int) -> float:
    """How surely the median lies between the numbers that remain when so many are left out at either end."""
    return 1 - 2 * sum(math.comb(count, each) for each in range(left_out + 1)) / (1 << count)


def pass_at(passed: int, counted: int) -> dict[int, float]:
    """By k, the chance that at least one of k trials passes: the share of all choices of k counted trials in which one does."""
    return {k: round(1 - math.comb(counted - passed, k) / math.comb(counted, k), DIGITS) for k in _sizes(counted)}


def all_at(passed: int, counted: int) -> dict[int, float]:
    """By k, the chance that k trials all pass, by the same choices."""
    return {k: round(math.comb(passed, k) / math.comb(counted, k), DIGITS) for k in _sizes(counted)}


def best_at(numbers: Sequence[float]) -> dict[int, float]:
    """By k, the mean of the best of k trials, by the same choices. `numbers` has one of each counted trial."""
    ordered, count = sorted(numbers), len(numbers)
    return {
        k: rounded(sum(x * math.comb(below, k - 1) for below, x in enumerate(ordered)) / math.comb(count, k))
        for k in _sizes(count)
    }


def _sizes(counted: int) -> list[int]:
    """More trials than were made say nothing without a model of them."""
    return [k for k in CHOICES if k <= counted]


def _interval(low: float, high: float, level: float) -> Interval:
    return Interval(low=round(low, DIGITS), high=round(high, DIGITS), level=round(level, DIGITS))


def spread(cells: Iterable[Sequence[float]]) -> float | None:
    """The pooled standard deviation within cells of log2 of their fractions; None where no cell has two."""
    several = [[math.log2(fraction) for fraction in cell] for cell in cells if len(cell) > 1]
    freedom = sum(len(cell) - 1 for cell in several)
    return math.sqrt(sum(variance(cell) * (len(cell) - 1) for cell in several) / freedom) if freedom else None


def least_ratio(trials: int, problems: int, spread: float, pass_rate: float = PASS_RATE) -> float | None:
    """The least ratio of two models' fractions given pass that shows in 80 % of such comparisons, on these problems, at 95 %.

    By Student's t, with that many trials of each problem and the same spread for both. None where no cell has two that pass.
    """
    passed = trials * pass_rate
    if passed <= 1:
        return None
    from scipy.special import stdtrit  # Student's quantile; scipy.stats takes half a second to import

    freedom = 2 * problems * (passed - 1)
    errors = float(stdtrit(freedom, (1 + LEVEL) / 2) + stdtrit(freedom, SEEN))
    return float(2 ** (errors * spread * math.sqrt(2 / (problems * passed))))


def least_pass_difference(trials: int, problems: int, pass_rate: float = PASS_RATE) -> float:
    """The least difference of two pass rates around `pass_rate` that shows in 80 % of such comparisons at 95 %; 1 at most."""
    return min(1.0, ERRORS * math.sqrt(2 * pass_rate * (1 - pass_rate) / (problems * trials)))
