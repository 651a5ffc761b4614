"""The judge's own part of a window, from windows of its own calls on a GPU, and without calls on a CPU. Both are played here."""

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from arena.judge import gpu_window, overhead  # noqa: E402
from arena.judge.sampling import CPU, GPU  # noqa: E402
from arena.judge.sets import WindowResult  # noqa: E402

CALLS, SPIN_S, PART_S = 40, 2e-6, {None: 290e-6, "graph": 320e-6, "stream": 315e-6}
GB_S, SET_S = 1000.0, 25e-6


class Worker:
    """A worker whose windows leave it stopped, and which obeys no order then."""

    stopped = False
    slow_windows = 3
    """While the driver clears memory: the first, and two of the three that are kept."""

    def order(self, op: str, limit_s: float) -> float:
        assert (op, self.stopped) == ("capture", False)
        return CALLS * SPIN_S

    def window(self, sets: Any, inputs: Any, prepare: Any, launch_mode: Any, *how: Any, alone: int | None) -> list[WindowResult]:
        self.stopped = True
        if alone is None:
            # The judge's own calls are all made, however many sets are published.
            slow, self.slow_windows = (1.1 if self.slow_windows > 0 else 1.0), self.slow_windows - 1
            return [WindowResult(PART_S[None] + CALLS * SPIN_S, slow * len(inputs) * SET_S, inputs, {})]
        late = [1e-3] * 4  # a machine that takes its time
        usual = [PART_S[launch_mode] + SPIN_S] * (len(inputs) - 1 - len(late))
        return [WindowResult(elapsed_s, 1e-5, inputs, {}, False) for elapsed_s in late + usual]


def measured(output_bytes: int, monkeypatch: pytest.MonkeyPatch) -> overhead.Overhead:
    """On a GPU, where a set's outputs are of this size."""
    placed = SimpleNamespace(output_layout=SimpleNamespace(set_bytes=output_bytes))
    monkeypatch.setattr(gpu_window, "run", Worker.window)
    monkeypatch.setattr(overhead, "place", lambda *where: placed)
    memory, device = SimpleNamespace(kind="cuda"), SimpleNamespace(bandwidth_gb_s=GB_S)
    context: Any = SimpleNamespace(sampling=GPU, most_calls=lambda shape: CALLS, memory=memory, device=device)
    worker: Any = Worker()
    return overhead.measure_overhead(context, worker, {"N": 1})


def test_own_calls_are_taken_off_the_windows_that_they_were_in(monkeypatch):
    """Windows that come late are no part of what a call costs: that would be taken off the submission's."""
    found = measured(6_000_000, monkeypatch)
    assert found.window_s == pytest.approx(PART_S[None])
    assert found.alone_s == pytest.approx({mode: PART_S[mode] for mode in ("graph", "stream")})
    assert (found.calls, found.publish_s, found.alone_publish_s) == (CALLS, CALLS * SET_S, 1e-5)
    assert (found.few, found.few_publish_s) == (GPU.min_calls, GPU.min_calls * SET_S)
    assert found.changes_s == pytest.approx(PART_S["stream"] - 12e-6)  # 6 MB are read and written


def test_a_copy_faster_than_the_memory_leaves_no_change(monkeypatch):
    """Outputs in a cache, or a bandwidth that is wrong in the hardware's file. Then any lateness counts, and none is negative."""
    found = measured(10**9, monkeypatch)
    late = [found.late_s(WindowResult(4e-3, CALLS * SET_S + late_s, (), {}), CALLS) for late_s in (-5e-6, 5e-6)]
    assert late == pytest.approx([0.0, 5e-6])


def test_a_process_timed_again_has_the_median_of_all(monkeypatch):
    """Its own is not known: when it starts, others have loaded the submission. The dropped process's would be a guess."""

    def played(*each: float) -> list[overhead.Overhead]:
        return [overhead.Overhead(alone_s, 40, alone_s={"graph": alone_s, "stream": 2 * alone_s}) for alone_s in each]

    # The first process alone times the last shape, which is not scored.
    scored, latency = overhead.usual([played(300e-6, 1e-6), played(310e-6), played(304e-6)])
    assert scored == overhead.Overhead(300e-6, 40, alone_s={"graph": 304e-6, "stream": 608e-6})
    assert latency == played(1e-6)[0]


def test_busy_moments_are_no_part_of_an_empty_window(monkeypatch):
    """What others compute meanwhile would be taken off the submission's windows, and raise its score."""
    windows = iter([5e-5, 3e-3, 1e-4, *[3e-3] * (CPU.empty_windows - 2)])  # the first does not count
    monkeypatch.setattr(overhead, "place", lambda *where: None)
    monkeypatch.setattr(overhead, "poison", lambda *where, seed: None)
    monkeypatch.setattr(overhead, "public_window", lambda *how: WindowResult(next(windows), 0.0, (), {}))
    context: Any = SimpleNamespace(sampling=CPU, most_calls=lambda shape: CALLS, memory=SimpleNamespace(kind="host"))
    worker: Any = Worker()
    assert overhead.measure_overhead(context, worker, {"N": 1}).window_s == 1e-4
    assert list(windows) == []
