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


@pytest.mark.parametrize("counted", [1, 2, 3, 5, 10, 21])
def test_success_agrees_with_scipy(counted: int) -> None:
    from scipy.stats import binomtest

    for passed in range(counted + 1):
        found, theirs = statistics.success(passed, counted), binomtest(passed, counted).proportion_ci(0.95, method="wilson")
        assert found is not None and (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-4)


@pytest.mark.parametrize("counted", [1, 2, 3, 5, 6])
def test_estimators_equal_the_mean_over_all_subsets(counted: int) -> None:
    numbers = [0.01, 0.3, 0.01, 0.7, 0.3, 0.01][:counted]  # 0.01 is naive: a failed trial
    for passed in range(counted + 1):
        trials = [True] * passed + [False] * (counted - passed)
        for k, value in statistics.pass_at(passed, counted).items():
            subsets = list(itertools.combinations(trials, k))
            assert value == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-4)
            assert statistics.all_at(passed, counted)[k] == pytest.approx(sum(map(all, subsets)) / len(subsets), abs=1e-4)
    best = statistics.best_at(numbers)
    assert set(best) == set(statistics.pass_at(0, counted)) == {k for k in statistics.CHOICES if k <= counted}
    for k, value in best.items():
        subsets_of = [max(subset) for subset in itertools.combinations(numbers, k)]
        assert value == pytest.approx(sum(subsets_of) / len(subsets_of), abs=1e-4)


def test_no_trial_says_nothing() -> None:
    assert statistics.pass_at(0, 0) == statistics.all_at(0, 0) == statistics.best_at([]) == {}
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


def test_spread_pools_the_cells_that_have_two() -> None:
    assert statistics.spread([[0.5], [], [0.3]]) is None
    # log2: -2 and -1, variance 0.5 with one degree of freedom; -1, -1, -1 none with two.
    assert statistics.spread([[0.25, 0.5], [0.5] * 3, [0.9]]) == pytest.approx(math.sqrt(0.5 / 3))


def test_one_trial_of_a_cell_shows_no_ratio() -> None:
    assert statistics.least_ratio(1, 7, 0.7) is None
    assert statistics.least_pass_difference(1, 1) == 1


@pytest.mark.parametrize(("trials", "problems"), [(3, 7), (5, 2), (10, 1)])
def test_the_least_ratio_is_seen_four_times_in_five(trials: int, problems: int) -> None:
    """Drawn, with the test that `arena compare` makes: Welch and Satterthwaite on log2, all trials passing."""
    import numpy as np
    from scipy.stats import t

    draws, spread, data_sets = np.random.default_rng(5), 0.7, 2000
    ratio = statistics.least_ratio(trials, problems, spread, pass_rate=1)
    assert ratio is not None
    cells = draws.normal(0, spread, (2, data_sets, problems, trials))
    cells[0] += math.log2(ratio)
    parts = cells.var(axis=-1, ddof=1) / trials
    total = parts.sum(axis=(0, 2))
    freedom = total**2 / (parts**2 / (trials - 1)).sum(axis=(0, 2))
    value = (cells[0] - cells[1]).mean(axis=-1).mean(axis=-1)
    seen = (value - t.ppf(0.975, freedom) * np.sqrt(total) / problems > 0).mean()
    assert 0.76 < seen < 0.84


def test_the_least_pass_difference_is_seen_four_times_in_five() -> None:
    import numpy as np

    draws, counted = np.random.default_rng(5), 70
    difference = statistics.least_pass_difference(10, 7, pass_rate=0.5)
    passed = [draws.binomial(counted, 0.5 + side * difference / 2, 4000) / counted for side in (1, -1)]
    error = np.sqrt(sum(share * (1 - share) for share in passed) / counted)
    assert 0.76 < ((passed[0] - passed[1]) / error > 1.96).mean() < 0.84


def test_equal_numbers_have_an_interval_without_width() -> None:
    found = statistics.median([0.25] * 7)
    assert found is not None and (found.low, found.high) == (0.25, 0.25)
    assert math.isclose(found.level, 0.9844)
