"""The trusted copy before a process is read until the driver has cleared what was given back before."""

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from arena.errors import JudgeError
from arena.judge import anchor, scoring
from arena.judge.anchor import PAUSE_S, READINGS, Anchor
from arena.judge.rejection import Rejection
from arena.judge.sampling import GPU


@pytest.mark.parametrize(
    ("readings", "taken"),
    [([100, 100.1], 100.1), ([97, 99, 100, 100.1, 50], 100.1), ([90, 110] * 20, 90)],
    ids=["steady", "after a worker's end", "never steady"],
)
def test_anchor_is_read_once_it_has_settled(readings: list[float], taken: float) -> None:
    assert Anchor(iter(readings).__next__, GPU.drift).settled_gb_s(wait=True) == taken


def read_beside_usual(*rates: float) -> tuple[float, int]:
    """(the rate, readings) of an anchor that gives these rates, then its last one for ever, and had 4,020 GB/s on an idle GPU."""
    left, taken = list(rates), list[float]()

    def read() -> float:
        taken.append(left.pop(0) if len(left) > 1 else left[0])
        return taken[-1]

    return Anchor(read, GPU.drift, 4020.0).settled_gb_s(wait=True), len(taken)


def test_a_steady_rate_takes_two_readings() -> None:
    assert read_beside_usual(4050.0, 4049.0) == (4049.0, 2)
    assert read_beside_usual(3901.0, 3900.0) == (3900.0, 2)  # 3 % less


def test_an_even_pace_below_the_usual_is_waited_for() -> None:
    """As on an H200: 3,650 GB/s, twice in a row, where 4,050 are usual. Beside the first process, too."""
    assert read_beside_usual(3650.0, 3652.0, 3651.0, 4046.0, 4048.0) == (4048.0, 5)


def test_a_device_that_stays_slow_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than the readings of one that is not steady, which take no pause."""
    monkeypatch.setattr(anchor, "WAIT_S", 1.0)
    rate, readings = read_beside_usual(3650.0)
    assert rate == 3650.0
    assert READINGS < readings <= 2 + 1.0 / PAUSE_S + 1


def in_pairs(rates: list[float]) -> Callable[[], float]:
    """Each of these twice."""
    each: Iterator[float] = iter([rate for rate in rates for _ in range(2)])
    return each.__next__


def test_the_fastest_of_all_rates_is_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anchor, "PAUSE_S", 0.0)
    beside = Anchor(in_pairs([4000.0, 4150.0, 3650.0, 3650.0, 3990.0, 4026.0]), GPU.drift)
    assert beside.settled_gb_s(wait=True) == 4000.0
    # After a process it is not waited for: how fast it is then is the question.
    assert [beside.settled_gb_s(wait=False) for _ in range(2)] == [4150.0, 3650.0]
    assert beside.settled_gb_s(wait=True) == 4026.0  # 3,990 is more than 3 % less than 4,150


def test_no_rate_is_unusual_at_first_or_on_a_processor() -> None:
    assert Anchor(in_pairs([10.0]), GPU.drift).settled_gb_s(wait=True) == 10.0
    on_a_processor = Anchor(in_pairs([20.0, 10.0]), math.inf)
    assert [on_a_processor.settled_gb_s(wait=True) for _ in range(2)] == [20.0, 10.0]


def stuck() -> float:
    raise Rejection("timed_out", "While the submission was stopped, the GPU did not end a copy of the judge's in 60 s")


@pytest.mark.parametrize(("kind", "shared", "known"), [("cuda", False, 4020.0), ("cuda", True, 0.0), ("host", False, 0.0)])
def test_a_gpu_of_its_own_has_a_usual_rate_at_once(kind: str, shared: bool, known: float) -> None:
    rates = iter([3650.0, 3650.0, 4020.0, 4018.0, 4019.0])  # the memory of a score before is cleared first
    device: Any = SimpleNamespace(memory=SimpleNamespace(kind=kind), anchor_gb_s=lambda: next(rates) if known else stuck())
    assert scoring._idle_gb_s(device, shared=shared) == known


def test_a_gpu_held_by_another_program_is_no_verdict() -> None:
    device: Any = SimpleNamespace(memory=SimpleNamespace(kind="cuda"), anchor_gb_s=stuck)
    with pytest.raises(JudgeError, match="a kernel of another program may hold it; end that or choose another GPU"):
        scoring._idle_gb_s(device, shared=False)
