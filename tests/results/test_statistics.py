"""Intervals of a few trials: known values, exact coverage, and nothing where too few say nothing."""

import itertools
import math

import pytest

from arena.results import statistics
from arena.results.board import Interval


@pytest.mark.parametrize(
    ("passed", "counted", "low", "high"),
    [
        (3, 3, 0.4385, 1.0),
        (0, 3, 0.0, 0.5615),
        (5, 5, 0.5655, 1.0),
        (10, 10, 0.7225, 1.0),
        (21, 21, 0.8454, 1.0),
        (15, 148, 0.0624, 0.1605),  # R. G. Newcombe, Statistics in Medicine 17 (1998), table I: 0.0624, 0.1605
        (81, 263, 0.2553, 0.3662),  # the same: 0.2553, 0.3662
        (0, 20, 0.0, 0.1611),  # the same: 0.0000, 0.1611
    ],
)
def test_success_is_wilsons_interval(passed: int, counted: int, low: float, high: float) -> None:
    assert statistics.success(passed, counted) == Interval(low=low, high=high, level=0.95)


def test_no_trial_says_nothing() -> None:
    assert statistics.success(0, 0) is None
    assert statistics.median([]) is None
    assert statistics.median([0.5]) is None


@pytest.mark.parametrize(
    ("count", "left_out", "level"),
    [(2, 0, 0.5), (3, 0, 0.75), (5, 0, 0.9375), (6, 0, 0.9688), (8, 0, 0.9922), (9, 1, 0.9609), (12, 2, 0.9614)],
)
def test_the_interval_of_the_median_says_how_sure_it_is(count: int, left_out: int, level: float) -> None:
    numbers = [each / 100 for each in range(1, count + 1)]
    wanted = Interval(low=numbers[left_out], high=numbers[-1 - left_out], level=level)
    assert statistics.median(list(reversed(numbers))) == wanted


@pytest.mark.parametrize("count", [2, 3, 5, 6, 9])
def test_its_confidence_is_the_share_of_all_cases(count: int) -> None:
    """Each number lies below or above the true median with the same chance: all cases are counted."""
    found = statistics.median(list(range(count)))
    assert found is not None
    first = int(found.low)
    held = sum(first < sum(below) <= count - 1 - first for below in itertools.product((0, 1), repeat=count))
    assert found.level == pytest.approx(held / 2**count, abs=1e-4)


def test_equal_numbers_have_an_interval_without_width() -> None:
    found = statistics.median([0.25] * 7)
    assert found is not None and (found.low, found.high) == (0.25, 0.25)
    assert math.isclose(found.level, 0.9844)
