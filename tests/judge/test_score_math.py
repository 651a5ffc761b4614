"""Ceilings, means and intervals: pure functions, cases counted by hand."""

import math
import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.judge.score_math import (
    ceiling,
    half_width,
    interval,
    interval_of_larger,
    median_of_processes,
    peak_fraction,
    trimmed_mean,
)
from arena.schema import Device

DEVICE = Device(name="d", bandwidth_gb_s=4800, tflops={"bf16": 989.5}, ceilings="datasheet")


def test_ceiling_of_a_memory_bound_call():
    found = ceiling(1e9, 4.8e9, DEVICE, "bf16")
    assert found.seconds == pytest.approx(1e-3)
    assert found.bound == "memory"


def test_ceiling_of_a_compute_bound_call():
    found = ceiling(989.5e9, 4.8e6, DEVICE, "bf16")
    assert found.seconds == pytest.approx(1e-3)
    assert found.bound == "compute"


def test_mean_of_fractions_is_geometric():
    assert peak_fraction([0.25, 1.0]) == pytest.approx(0.5)


def test_one_slow_process_does_not_move_the_time():
    assert median_of_processes([[1.0, 1.0, 9.0], [1.1, 1.1, 1.1], [5.0, 5.0, 5.0]]) == pytest.approx(1.1)


def test_calls_with_two_times_count_with_their_mean():
    """One more call of the slower kind moves a median from one time to the other, and their mean by its share."""
    faster, slower = ([10.0] * count + [12.0] * (20 - count) for count in (11, 9))
    assert (median(faster), median(slower)) == (10.0, 12.0)
    assert trimmed_mean(slower) - trimmed_mean(faster) == pytest.approx(2 * 2.0 / 16)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 14, 28])
def test_a_tenth_at_either_end_does_not_count(count):
    outliers = round(count / 10)
    found = [-1e9] * outliers + [1.0] * (count - 2 * outliers) + [1e9] * outliers
    assert trimmed_mean(found[::-1]) == 1.0


samples = st.lists(st.lists(st.floats(1e-6, 1.0), min_size=3, max_size=20), min_size=1, max_size=4)


@given(samples)
def test_interval_is_ordered_and_deterministic(processes):
    low, high = interval(processes)
    assert low <= high
    assert (low, high) == interval(processes)
    assert min(map(min, processes)) <= low and high <= max(map(max, processes))


@pytest.mark.slow
@given(samples)
def test_only_the_larger_times_make_an_interval(processes):
    """Of calls among others and alone, those that cannot count have no part in it."""
    least, most = min(map(min, processes)) * (1 - 1e-12), max(map(max, processes)) * (1 + 1e-12)  # means are rounded
    far, near = [[4.0]] * len(processes), [[1e-9]] * len(processes)
    for low, high in (interval_of_larger(processes, near), interval_of_larger(near, processes)):
        assert least <= low <= high <= most
    assert interval_of_larger(far, processes) == interval_of_larger(processes, far) == (4.0, 4.0)


def test_interval_covers_the_true_value_as_often_as_claimed():
    dice = random.Random(1)
    inside = 0
    for _ in range(100):
        low, high = interval([[dice.gauss(1.0, 0.1) for _ in range(40)] for _ in range(3)])
        inside += low <= 1.0 <= high
    assert inside >= 85


def test_half_width_is_relative():
    values = [dice for dice in (0.9, 1.0, 1.1, 1.0, 1.0, 0.95, 1.05)]
    assert half_width(values) == pytest.approx(half_width([1000 * v for v in values]))
    assert 0 < half_width(values) < 0.2 / median(values)


def test_geometric_mean_is_below_the_arithmetic():
    values = [0.1, 0.4, 0.9]
    assert peak_fraction(values) < math.fsum(values) / 3
