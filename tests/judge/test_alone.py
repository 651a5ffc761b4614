"""What the windows of a GPU's shape become: the overhead taken off, and a call alone that counts where calls overlapped."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from arena.judge import scoring, timing
from arena.judge.context import SHORTEST_CALL_S, ScoringContext
from arena.judge.evaluation import _without_graphs
from arena.judge.gpu_window import Unqueued
from arena.judge.overhead import Overhead
from arena.judge.problem_code import kit
from arena.judge.rejection import Rejection
from arena.judge.sampling import GPU
from arena.judge.sets import Disturbed, WindowResult
from arena.judge.window import WindowSpec
from arena.schema import Device, LaunchMode

DEVICE = Device(name="a GPU", bandwidth_gb_s=1000.0, tflops={"bf16": 100.0}, ceilings="datasheet")
PROBLEM: Any = SimpleNamespace(flops=lambda shape: 1.0, bytes=lambda shape: 5e4, name="made_up")
CODE: Any = SimpleNamespace(rate="bf16")
UNUSED: Any = None
CONTEXT: Any = ScoringContext(PROBLEM, CODE, DEVICE, memory=UNUSED, sampling=GPU, seeds=UNUSED, stopwatch=UNUSED)
OVERHEAD_S, ALONE_OVERHEAD_S = 290e-6, 295e-6


def process(
    call_s: float,
    alone_s: float,
    overhead_s: float = OVERHEAD_S,
    launch_mode: LaunchMode = "graph",
    change_s: float = 0.0,
) -> timing.ShapeTiming:
    """Three windows of ten calls, and three calls alone, in a process where a change of context takes `change_s` more."""
    alone_overhead_s = ALONE_OVERHEAD_S + change_s
    overhead = Overhead(overhead_s, 10, alone_s={"graph": alone_overhead_s, "stream": alone_overhead_s})
    windows, alone = (OVERHEAD_S + 10 * call_s,) * 3, (alone_overhead_s + alone_s,) * 3
    return timing.ShapeTiming(launch_mode, 10, windows, alone, overhead, {"rel_fro": 0.0})


def timed(*processes: timing.ShapeTiming) -> Any:
    return scoring._timed(CONTEXT, {"N": 1}, list(processes))


def publishing(changes_us: float = 290) -> Overhead:
    """Where twenty sets are published in 1 ms and ten in 0.6, and one in 0.1 with what makes its outputs wrong."""
    overhead = Overhead(OVERHEAD_S, 20, publish_s=1000e-6, few=10, few_publish_s=600e-6, alone_publish_s=100e-6)
    return replace(overhead, changes_s=changes_us / 1e6)


def published(late_us: float, in_us: float = 1000) -> WindowResult:
    return WindowResult(1e-3, (in_us + late_us) / 1e6, (), {})


@pytest.mark.parametrize(("calls", "in_us"), [(40, 1800), (20, 1000), (15, 800), (10, 600), (5, 400), (1, 100)])
@pytest.mark.parametrize(("late_us", "counted_us"), [(0, 0), (84, 0), (115, 0), (117, 117), (150, 150), (-90, 0)])
def test_publishing_for_longer_than_alone_counts(calls: int, in_us: float, late_us: float, counted_us: float) -> None:
    """What runs on the GPU meanwhile could work on the inputs, and takes turns with the copy. Two changes take 290 us."""
    found_s = publishing().late_s(published(late_us, in_us), calls)
    assert found_s == pytest.approx(counted_us / 1e6)


@pytest.mark.parametrize(
    ("changes_us", "least_us"),
    [(0, 0), (100, 40), (200, 80), (300, 120), (900, 120)],
    ids=["unknown", "fast", "less", "usual", "slow"],
)
def test_the_least_lateness_follows_the_change_of_context(changes_us: float, least_us: float) -> None:
    """A GPU that changes faster lets another kernel run in less."""
    overhead = publishing(changes_us)
    assert overhead.late_s(published(least_us - 0.5), 20) == 0.0
    assert overhead.late_s(published(least_us + 0.5), 20) == pytest.approx((least_us + 0.5) / 1e6)


def test_publishing_for_far_longer_is_tried_again() -> None:
    overhead = Overhead(OVERHEAD_S, 10, 10e-3, few_publish_s=1e-3)
    assert overhead.late_s(published(2900, 10_000), 10) == pytest.approx(2.9e-3)
    with pytest.raises(Disturbed, match=r"3\.1 ms more than 10 ms"):
        overhead.late_s(published(3100, 10_000), 10)


@pytest.mark.parametrize(
    ("call_us", "alone_us", "captured_us", "launched_us"),
    [(100, 100, 100, 100), (100, 101, 100, 101), (100, 120, 118.2, 120), (100, 80, 100, 100), (800, 1000, 990, 1000)],
    ids=["alike", "cold code", "overlapped", "faster alone", "long and overlapped"],
)
def test_a_call_gains_at_most_the_margin_from_those_beside_it(
    call_us: float, alone_us: float, captured_us: float, launched_us: float
) -> None:
    """Calls that are launched one by one may overlap within the rules, and gain nothing."""
    modes: dict[LaunchMode, float] = {"graph": captured_us, "stream": launched_us}
    for launch_mode, counted_us in modes.items():
        found = timed(*[process(call_us / 1e6, alone_us / 1e6, launch_mode=launch_mode)] * 3)
        assert found.measured_s == pytest.approx(counted_us / 1e6)
        assert found.process_medians_s == pytest.approx((found.measured_s,) * 3)
        assert found.alone_s == pytest.approx(alone_us / 1e6)
        assert found.measured_s == pytest.approx(max(found.among_s, found.alone_s - found.alone_margin_s))


@pytest.mark.parametrize(("call_s", "alone_s"), [(1e-4, 1.01e-4), (1e-4, 1.2e-4), (1e-3, 2e-3)])
def test_the_agents_benchmark_counts_captured_calls_alike(call_s: float, alone_s: float) -> None:
    counted_s = kit("benchmark").counted(call_s, alone_s)
    assert counted_s == pytest.approx(timed(process(call_s, alone_s)).measured_s)


def test_an_impossible_time_among_others_is_no_score() -> None:
    """A time alone that is possible hides nothing."""
    large = SimpleNamespace(flops=lambda shape: 1.0, bytes=lambda shape: 5e7, name="made_up")
    with pytest.raises(Rejection, match=r"20\.00 us, but the hardware needs 50\.00 us") as refused:
        scoring._timed(replace(CONTEXT, problem=large), {"N": 1}, [process(20e-6, 51e-6)] * 3)
    assert refused.value.verdict == "cheated"


def test_both_times_are_on_record() -> None:
    found = timed(*[process(100e-6, 130e-6)] * 3)
    assert (found.among_s, found.alone_s, found.alone_margin_s) == pytest.approx((100e-6, 130e-6, 1.95e-6))
    assert [len(samples) for samples in (*found.samples_s, *found.alone_samples_s)] == [3] * 6
    assert found.samples_s[0] == pytest.approx((100e-6,) * 3)
    assert found.alone_samples_s[0] == pytest.approx((130e-6,) * 3)


def test_the_smaller_time_marks_a_shape_unsteady_too() -> None:
    """Else a submission whose windows scatter below its time alone would have no mark."""
    apart = [process(call_s, 100e-6) for call_s in (60e-6, 80e-6, 97e-6)]
    assert (timed(*apart).measured_s, timed(*apart).unsteady) == (pytest.approx(98.5e-6), True)
    assert not timed(*[process(80e-6, 100e-6)] * 3).unsteady


@pytest.mark.parametrize(("longest_us", "unsteady"), [(101.0, False), (104.0, False), (130.0, True)])
def test_calls_alone_that_could_count_mark_a_shape_unsteady(longest_us: float, unsteady: bool) -> None:
    """Also where their median is below the time among others: another score's could be above, by as much as they are."""
    found = timed(*[process(100e-6, alone_s) for alone_s in (80e-6, 90e-6, longest_us / 1e6)])
    assert (found.measured_s, found.unsteady) == (pytest.approx(100e-6), unsteady)


def test_calls_alone_that_could_be_longer_mark_a_shape() -> None:
    """Another score's may be longer, though in this one they are not."""
    scattered = replace(process(100e-6, 1.0), alone_s=tuple(ALONE_OVERHEAD_S + us / 1e6 for us in (92, 96, 100, 106, 108)))
    found = timed(*[scattered] * 3)
    assert found.measured_s == pytest.approx(100e-6)
    assert found.unsteady and found.ci95 == pytest.approx((100e-6, 100e-6))


def test_only_calls_alone_have_room_for_the_clock() -> None:
    """Windows of many calls are known far better than a call alone, also of a short kernel."""
    of_windows = [process(call_s, 70e-6) for call_s in (60e-6, 62e-6, 64e-6)]
    alone = [process(50e-6, call_s) for call_s in (60e-6, 62e-6, 64e-6)]
    assert timed(*of_windows).unsteady
    assert not timed(*alone).unsteady


@pytest.mark.parametrize(
    ("among_us", "alone_us", "flagged"), [(100.0, 112.0, False), (60.0, 82.0, False), (60.0, 100.0, True), (700.0, 850.0, True)]
)
def test_calls_much_faster_among_others_are_flagged(among_us: float, alone_us: float, flagged: bool) -> None:
    assert timed(*[process(among_us / 1e6, alone_us / 1e6)] * 3).overlapped() is flagged


def test_the_least_overhead_of_all_processes_counts() -> None:
    """One that was measured while something disturbed the machine takes nothing off the others."""
    found = timed(process(1e-4, 1e-4), process(1e-4, 1e-4, overhead_s=2 * OVERHEAD_S), process(1e-4, 1e-4))
    assert found.overhead_s == OVERHEAD_S
    assert found.process_medians_s == pytest.approx((1e-4, 1e-4, 1e-4))


def test_each_process_has_its_own_overhead_of_a_call_alone() -> None:
    """A change of context takes some microseconds more in one process than in another, with a submission or without."""
    found = timed(*[process(100e-6, 110e-6, change_s=change_s) for change_s in (-3e-6, 0.0, 3e-6)])
    assert found.process_medians_s == pytest.approx((108.35e-6,) * 3)
    assert found.alone_overhead_s == pytest.approx(ALONE_OVERHEAD_S)


def test_one_disturbed_overhead_changes_nothing() -> None:
    found = timed(*[process(100e-6, alone_us / 1e6) for alone_us in (110.0, 80.0, 110.0)])
    assert found.measured_s == pytest.approx(108.35e-6)


@pytest.mark.parametrize(("sets", "calls"), [(3, 3), (6, 6), (10, 6), (11, 7), (13, 8), (14, 9), (128, 9)])
def test_long_calls_are_alone_less_often(sets: int, calls: int) -> None:
    assert timing.calls_alone(sets) == calls


@pytest.mark.parametrize(("sets", "batches"), [(12, 4), (3, 3)])
def test_each_batch_of_calls_alone_is_on_a_set_of_its_own(sets: int, batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    used = list[int]()

    def alone(context: Any, worker: Any, placed: Any, shape: Any, launch_mode: Any, number: int) -> list[Any]:
        used.append(number)
        return [(WindowResult(1e-3, 0.0, (), {}), {"rel_fro": 0.5})]

    placed = SimpleNamespace(count=sets, all_outputs=lambda count: ())
    played: dict[str, Any] = {
        "place": placed,
        "_warm_up": None,
        "_audit_window": None,
        "written": None,
        "verify": {"rel_fro": 0.0},
    }
    for name, answer in {**played, "public_window": WindowResult(1e-3, 0.0, (), {})}.items():
        monkeypatch.setattr(timing, name, lambda *_, answer=answer, **__: answer)
    monkeypatch.setattr(timing, "_alone", alone)
    context: Any = SimpleNamespace(sampling=GPU, problem=SimpleNamespace(tolerance={"rel_fro": 1.0}), code=None)
    found = timing._time_once(context, UNUSED, {"N": 1}, "graph", sets, Overhead(0.0, 2))
    assert len(set(used)) == len(used) == len(found.alone_s) == batches
    assert found.error == {"rel_fro": 0.5}


def test_no_time_is_below_zero() -> None:
    run = process(1e-4, 1e-4)
    assert run.samples_s(1.0) == (SHORTEST_CALL_S,) * 3
    assert run.alone_samples_s(1.0) == (SHORTEST_CALL_S,) * 3


GRAPH, CALLED = WindowSpec("graph", 64), WindowSpec("stream", 8)


def unqueued(number: int) -> Unqueued:
    return Unqueued("timed_out", "too many kernels", shape={"N": number})


def test_what_does_not_fit_into_the_queue_is_called() -> None:
    """All scored shapes, which have one launch mode, and with no fewer calls: their sets exceed the cache."""
    scored = ({"N": 1}, {"N": 2})
    expected = [WindowSpec("stream", 64)] * 2 + [GRAPH]
    assert _without_graphs([GRAPH] * 3, [CALLED] * 3, scored, unqueued(2)) == expected
    with pytest.raises(Unqueued):
        _without_graphs(expected, [CALLED] * 3, scored, unqueued(2))


def test_a_latency_shape_never_has_the_scored_ones_timed_again() -> None:
    with pytest.raises(Unqueued):
        _without_graphs([GRAPH] * 3, [CALLED] * 3, ({"N": 1}, {"N": 2}), unqueued(3))
