"""The judge's own calls and copies, timed on a machine that keeps its processes from a processor. The GPU is played here."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from arena.errors import JudgeError  # noqa: E402
from arena.judge.device import gpu, nvml  # noqa: E402
from arena.judge.rejection import Rejection  # noqa: E402
from arena.judge.worker import main  # noqa: E402
from arena.judge.worker_client import Uncapturable, as_judge_failure  # noqa: E402

CYCLES_PER_S, CALLS_S = 2e9, 30e-6


class Gpu:
    """A stream that works through what is queued, beside a host that takes its time to queue the next."""

    def __init__(self) -> None:
        self.now_s, self.free_s = 0.0, 0.0

    def queue(self, seconds: float) -> None:
        self.free_s = max(self.free_s, self.now_s) + seconds

    def spin(self, cycles: int) -> None:
        self.queue(cycles / CYCLES_PER_S)

    def event(self, enable_timing: bool = False) -> "Event":
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


def played(monkeypatch: Any) -> Gpu:
    """A GPU in the place of torch's."""
    found = Gpu()
    monkeypatch.setattr(torch.cuda, "_sleep", found.spin)
    monkeypatch.setattr(torch.cuda, "Event", found.event)
    monkeypatch.setattr(gpu, "await_event", Event.synchronize)
    return found


def reading(monkeypatch: Any, waits_s: list[float]) -> float:
    """The reading of calls that take CALLS_S, each of whose launches has the worker wait so long for a processor."""
    found, waits = played(monkeypatch), iter(waits_s)

    def launch() -> None:
        found.now_s += next(waits)
        found.queue(CALLS_S)

    return main.seconds(launch)


def test_a_launch_in_time_is_the_reading(monkeypatch):
    assert reading(monkeypatch, [20e-6]) == pytest.approx(CALLS_S)


def test_a_wait_for_a_processor_is_no_part_of_it(monkeypatch):
    assert reading(monkeypatch, [0.45e-3, 0.45e-3, 0.45e-3]) == pytest.approx(CALLS_S)
    assert reading(monkeypatch, [0.9e-3, 30e-3, 30e-3, 1e-3]) == pytest.approx(CALLS_S)


def test_an_overloaded_machine_is_named(monkeypatch):
    with pytest.raises(RuntimeError, match="is the machine overloaded"):
        reading(monkeypatch, [1.0] * 20)


def test_it_is_the_judge_s_failure():
    with pytest.raises(JudgeError, match="could not time the judge's own calls: is the machine overloaded"), as_judge_failure():
        raise Uncapturable(": is the machine overloaded?")


COPY_S = 2 * gpu.ANCHOR_BYTES / 3e12


def copied(monkeypatch: Any, wait_s: Callable[[int], float], clocks_mhz: Any = None) -> tuple[list[float], int]:
    """(two readings of the trusted copy at 3,000 GB/s, how many copies that took), by the clocks of processors and memory.

    The host takes `wait_s` before it queues each copy.
    """
    found, copies = played(monkeypatch), 0

    def copy(source: object) -> None:
        nonlocal copies
        found.now_s += wait_s(copies)
        found.queue(COPY_S)
        copies += 1

    memory = SimpleNamespace(copy_=copy)
    monkeypatch.setattr(torch, "zeros", lambda *size, **how: memory)
    monkeypatch.setattr(torch, "empty_like", lambda source: memory)
    clocks = {"ClockInfo": clocks_mhz, "MaxClockInfo": (1980, 2619)}
    monkeypatch.setattr(nvml.Gpu, "ask", lambda self, name, clock: clocks[name][clock])
    library = SimpleNamespace(NVML_CLOCK_SM=0, NVML_CLOCK_MEM=1)
    anchor = gpu._anchor(0, None if clocks_mhz is None else nvml.Gpu(library, None))
    return [anchor(), anchor()], copies


def rate(monkeypatch: Any, wait_s: Callable[[int], float]) -> float:
    """The second reading."""
    return copied(monkeypatch, wait_s)[0][1]


@pytest.mark.parametrize(
    ("clocks_mhz", "warm_up"),
    [
        (None, True),
        ((345, 2619), True),
        ((1980, 405), True),
        ((1980, None), True),
        ((1980, 2619), False),
        ((1200, 2619), False),
    ],
)
def test_only_a_gpu_with_low_clocks_is_warmed_up(monkeypatch, clocks_mhz, warm_up):
    readings, copies = copied(monkeypatch, lambda number: 5e-6, clocks_mhz)
    assert readings == pytest.approx([3000, 3000])
    assert copies == 2 * gpu.ANCHOR_COPIES + (gpu.ANCHOR_WARM_UPS * gpu.ANCHOR_COPIES if warm_up else 0)


@pytest.mark.parametrize("looks", [1, 5])
def test_a_copy_that_ends_is_waited_for(looks):
    left = iter([False] * (looks - 1) + [True])
    event: Any = SimpleNamespace(query=lambda: next(left))
    gpu.await_event(event)
    assert list(left) == []


def test_a_device_that_does_not_answer_is_the_submissions_doing():
    """All workers are stopped then: no limit of theirs would end them."""
    event: Any = SimpleNamespace(query=lambda: False)
    with pytest.raises(Rejection, match=r"did not end a copy of the judge's in 0 s: .* may hold it") as caught:
        gpu.await_event(event, limit_s=0.01)
    assert caught.value.verdict == "timed_out"


@pytest.mark.parametrize("wait_s", [5e-6, 100e-6, 0.9 * COPY_S], ids=["quiet", "busy", "as slow as the GPU"])
def test_a_busy_host_does_not_slow_the_trusted_copy(monkeypatch, wait_s):
    assert rate(monkeypatch, lambda number: wait_s) == pytest.approx(3000)


def test_a_host_that_is_slow_now_and_then_does_not_either(monkeypatch):
    assert rate(monkeypatch, lambda number: 5e-3 if number % 7 == 0 else 5e-6) == pytest.approx(3000)


def test_a_slower_gpu_reads_slower(monkeypatch):
    monkeypatch.setattr(f"{__name__}.COPY_S", COPY_S / 0.9)
    assert rate(monkeypatch, lambda number: 5e-6) == pytest.approx(2700)
