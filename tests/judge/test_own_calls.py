"""How the worker times the judge's own calls: on a machine that keeps it from a processor, too. Clock and GPU are played here."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from arena.judge.worker import main  # noqa: E402

CYCLES_PER_S, CALLS_S = 2e9, 30e-6


class Gpu:
    """A stream that works through what is queued, beside a host that takes its time to queue the next."""

    def __init__(self) -> None:
        self.now_s, self.free_s = 0.0, 0.0

    def queue(self, seconds: float) -> None:
        self.free_s = max(self.free_s, self.now_s) + seconds

    def spin(self, cycles: int) -> None:
        self.queue(cycles / CYCLES_PER_S)

    def event(self, enable_timing: bool) -> "Event":
        assert enable_timing
        return Event(self)


class Event:
    """A CUDA event of that stream."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.at_s = gpu, 0.0

    def record(self) -> None:
        self.gpu.queue(0.0)
        self.at_s = self.gpu.free_s

    def query(self) -> bool:
        return self.gpu.now_s >= self.at_s

    def synchronize(self) -> None:
        self.gpu.now_s = max(self.gpu.now_s, self.at_s)

    def elapsed_time(self, end: "Event") -> float:
        return (end.at_s - self.at_s) * 1e3


def reading(monkeypatch: Any, waits_s: list[float]) -> float:
    """The reading of calls that take CALLS_S, each of whose launches has the worker wait so long for a processor."""
    gpu, waits = Gpu(), iter(waits_s)
    monkeypatch.setattr(torch.cuda, "_sleep", gpu.spin)
    monkeypatch.setattr(torch.cuda, "Event", gpu.event)

    def launch() -> None:
        gpu.now_s += next(waits)
        gpu.queue(CALLS_S)

    return main.seconds(launch)


def test_a_launch_in_time_is_the_reading(monkeypatch):
    assert reading(monkeypatch, [20e-6]) == pytest.approx(CALLS_S)


def test_a_wait_for_a_processor_is_no_part_of_it(monkeypatch):
    assert reading(monkeypatch, [0.45e-3, 0.45e-3, 0.45e-3]) == pytest.approx(CALLS_S)
    assert reading(monkeypatch, [0.9e-3, 30e-3, 30e-3, 1e-3]) == pytest.approx(CALLS_S)


def test_an_overloaded_machine_is_named(monkeypatch):
    with pytest.raises(RuntimeError, match="is the machine overloaded"):
        reading(monkeypatch, [1.0] * 20)
