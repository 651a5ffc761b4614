"""The trusted copy between two processes is read until the driver has taken the last worker's memory back."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from arena.judge import evaluation
from arena.judge.evaluation import SETTLE_PAUSE_S, SETTLE_READINGS, ProcessResult, _settled_gb_s
from arena.judge.sampling import GPU


@pytest.mark.parametrize(
    ("readings", "taken"),
    [([100, 100.1], 100.1), ([97, 99, 100, 100.1, 50], 100.1), ([90, 110] * 20, 90)],
    ids=["steady", "after a worker's end", "never steady"],
)
def test_anchor_is_read_once_it_has_settled(readings: list[float], taken: float) -> None:
    reading = iter(readings)
    assert _settled_gb_s(lambda: next(reading)) == taken


def read_with_usual(*rates: float) -> tuple[float, int]:
    """(the rate, readings) of an anchor that gives these rates, and then its last one for ever."""
    left = list(rates)
    taken = list[float]()

    def anchor() -> float:
        taken.append(left.pop(0) if len(left) > 1 else left[0])
        return taken[-1]

    rate = _settled_gb_s(anchor, 3900.0)
    return rate, len(taken)


def test_a_steady_rate_takes_two_readings() -> None:
    assert read_with_usual(4050.0, 4049.0) == (4049.0, 2)


def test_an_even_pace_below_the_usual_is_waited_for() -> None:
    """As on an H200: 3,650 GB/s, twice in a row, where 4,050 are usual."""
    assert read_with_usual(3650.0, 3652.0, 3651.0, 4046.0, 4048.0) == (4048.0, 5)


def test_a_device_that_stays_slow_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than the readings of one that is not steady, which take no pause."""
    monkeypatch.setattr(evaluation, "SETTLE_S", 1.0)
    rate, readings = read_with_usual(3650.0)
    assert rate == 3650.0
    assert SETTLE_READINGS < readings <= 2 + 1.0 / SETTLE_PAUSE_S + 1


def test_a_repeat_and_later_processes_know_the_usual_rate() -> None:
    context: Any = SimpleNamespace(sampling=GPU)
    found = [ProcessResult((), (), (4000.0, 4050.0)), ProcessResult((), (), (3650.0, 4040.0))]
    assert evaluation._usual_gb_s(context, []) == 0.0
    assert evaluation._usual_gb_s(context, found) == pytest.approx(0.97 * 4050.0)


def test_no_rate_is_usual_at_first_or_on_a_processor() -> None:
    assert _settled_gb_s(iter([10.0, 10.0]).__next__) == 10.0
    assert _settled_gb_s(iter([10.0, 10.0]).__next__, (1 - math.inf) * 20.0) == 10.0
