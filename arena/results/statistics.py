"""What a few trials let anybody say. Closed forms without resampling: the same trials give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from arena.results.board import Interval

LEVEL = 0.95
"""Confidence that an interval has at least, where so few trials allow it."""
DIGITS = 4


def success(passed: int, counted: int) -> Interval | None:
    """Wilson's interval of the chance that a trial passes. None without a counted trial."""
    if not counted:
        return None
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    share, weight = passed / counted, z * z / counted
    middle = (share + weight / 2) / (1 + weight)
    half = z / (1 + weight) * math.sqrt(share * (1 - share) / counted + weight / counted / 4)
    return _interval(max(0.0, middle - half), min(1.0, middle + half), LEVEL)


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


def _interval(low: float, high: float, level: float) -> Interval:
    return Interval(low=round(low, DIGITS), high=round(high, DIGITS), level=round(level, DIGITS))
