"""What the judge does where it cannot have a worker that it needs: a result stands, or whose failure it is."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from arena.errors import SandboxError
from arena.judge import buffers, building, evaluation, kernels
from arena.judge.anchor import Anchor
from arena.judge.evaluation import ProcessResult
from arena.judge.gpu_window import Unqueued
from arena.judge.overhead import Overhead
from arena.judge.rejection import NotAloneError, Rejection
from arena.judge.timing import ShapeTiming
from arena.judge.window import WindowSpec
from arena.schema import Evidence, Kernel

SHAPE = {"N": 1}
SPEC = WindowSpec("graph", 8)
OVERHEAD = Overhead(0.0)
STEADY = Anchor(lambda: 1.0, 0.03)
TIMED = ShapeTiming("graph", 8, (8e-3,), (), OVERHEAD, {})
PROBLEM = SimpleNamespace(shapes={"gpu": (SHAPE,)}, timed=lambda profile: (SHAPE,))
CONTEXT: Any = SimpleNamespace(
    memory=SimpleNamespace(kind="host"),
    sampling=SimpleNamespace(kernels=False, repeats=1, drift=0.03, processes=1, min_calls=8),
    problem=PROBLEM,
    code=SimpleNamespace(extra_shapes=()),
    stopwatch=SimpleNamespace(phase=lambda name: nullcontext()),
    room=lambda shape: 8,
)


@contextmanager
def start() -> Iterator[Any]:
    yield SimpleNamespace(wait_until_ready=lambda memory: None)


OUT_OF_MEMORY = Rejection("crashed", "solution() raised an exception: torch.OutOfMemoryError: CUDA out of memory.")


@pytest.mark.parametrize(
    ("failure", "others", "stands"),
    [
        (OUT_OF_MEMORY, True, True),
        (OUT_OF_MEMORY, False, False),
        (SandboxError("no process could be started"), False, True),
        (RuntimeError("CUDA out of memory"), False, True),
        (MemoryError(), False, True),
        (Rejection("crashed", "ZeroDivisionError"), True, False),
        (Rejection("cheated", "a process ran"), True, False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_a_result_stands_where_no_other_process_can_be_had(
    failure: Exception, others: bool, stands: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device changed its speed, so the process is to be timed again, and the others hold all memory."""

    def fail(*arguments: Any) -> None:
        raise failure

    monkeypatch.setattr(building, "build", fail)
    monkeypatch.setattr(evaluation, "_time_process", lambda *a, **k: ProcessResult((TIMED,), (), (100.0, 50.0)))

    def timed() -> list[ProcessResult]:
        own = building.OwnWorker(start, lambda worker: None)
        counters = object() if others else None  # their worker is loaded, too
        arguments = ([own], [[OVERHEAD]], start, [(SHAPE,)], [SPEC], (SHAPE,), STEADY, counters, lambda text: None)
        return evaluation._time_all(CONTEXT, *arguments)  # type: ignore[arg-type]

    if not stands:
        with pytest.raises(Rejection) as caught:
            timed()
        assert caught.value is failure
        return
    (result,) = timed()
    assert result.shapes[0].windows_s == TIMED.windows_s
    assert result.shapes[0].disturbed == (f"no other process could be had to time it again: {failure}",)


@pytest.mark.parametrize(
    ("again", "counted"),
    [(0.99, 1.0), (0.98, 1.0), (0.96, 0.96), (1.01, 1.01), (1.5, 1.5)],
    ids=["luckier", "luckiest", "the device has changed", "slower", "far slower"],
)
def test_no_lucky_process_is_had_in_the_place_of_another(again: float, counted: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A submission that disturbs the device may choose which of its processes is timed again."""
    tries = iter([(1.0, (100.0, 50.0)), (again, (100.0, 100.0))])

    def time_process(*arguments: Any, **named: Any) -> ProcessResult:
        factor, anchors = next(tries)
        windows_s = tuple(factor * window_s for window_s in TIMED.windows_s)
        return ProcessResult((replace(TIMED, windows_s=windows_s, disturbed=(f"in {anchors}",)),), (), anchors)

    monkeypatch.setattr(building, "build", lambda *a: None)
    monkeypatch.setattr(evaluation, "_time_process", time_process)
    own = building.OwnWorker(start, lambda worker: None)
    arguments = ([own], [[OVERHEAD]], start, [(SHAPE,)], [SPEC], (SHAPE,), STEADY, None, lambda text: None)
    (result,) = evaluation._time_all(CONTEXT, *arguments)  # type: ignore[arg-type]
    assert result.dropped == ((100.0, 50.0),)
    assert result.shapes[0].windows_s == pytest.approx([counted * window_s for window_s in TIMED.windows_s])
    assert result.shapes[0].disturbed == ("in (100.0, 50.0)", "in (100.0, 100.0)")


def test_a_replaced_worker_has_the_usual_overhead(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured in the process that it replaces is not its own, and others have loaded the submission by now."""
    taken = list[float]()

    def time_process(context: Any, worker: Any, overheads: list[Overhead], *a: Any, **k: Any) -> ProcessResult:
        taken.append(overheads[0].alone_s["graph"])
        return ProcessResult((TIMED,), (), (100.0, 100.0))

    monkeypatch.setattr(evaluation, "_time_process", time_process)
    own = [building.OwnWorker(start, lambda worker: None) for _ in range(3)]
    own[0].end()
    own[0].replace()
    overheads = [[Overhead(0.0, alone_s={"graph": alone_s})] for alone_s in (9.0, 1.0, 2.0)]
    arguments = (own, overheads, start, [(SHAPE,)] * 3, [SPEC], (SHAPE,), STEADY, None, lambda text: None)
    evaluation._time_all(CONTEXT, *arguments)  # type: ignore[arg-type]
    assert taken == [2.0, 1.0, 2.0]


def test_what_every_process_launches_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what one launches whose time is replaced. The counters are read once, when the last is timed."""
    counters, asked = object(), list[object]()
    drifts = iter([(100.0, 50.0), (100.0, 100.0), (100.0, 100.0), (100.0, 100.0)])

    def time_process(context: Any, worker: Any, *arguments: Any, **named: Any) -> ProcessResult:
        return ProcessResult((TIMED,), arguments[5](worker), next(drifts))

    def launched(context: Any, worker: Any, shapes: Any, specs: object, counters: object) -> tuple[Evidence, ...]:
        assert specs == [SPEC], "calls are made as timed ones are"
        asked.append(counters)
        return (Evidence(shape=SHAPE, kernels=(Kernel(name=f"of call {len(asked)}", launches=1),)),)

    monkeypatch.setattr(building, "build", lambda *a: None)
    monkeypatch.setattr(evaluation, "_time_process", time_process)
    monkeypatch.setattr(kernels, "launched_kernels", launched)
    sampling = SimpleNamespace(**{**vars(CONTEXT.sampling), "kernels": True})
    context: Any = SimpleNamespace(**{**vars(CONTEXT), "memory": SimpleNamespace(kind="cuda"), "sampling": sampling})
    own = [building.OwnWorker(start, lambda worker: None) for _ in range(3)]
    arguments = (own, [[OVERHEAD]] * 3, start, [(SHAPE,)] * 3, [SPEC], (SHAPE,), STEADY, counters, lambda text: None)
    results = evaluation._time_all(context, *arguments)  # type: ignore[arg-type]
    assert asked == [None, None, None, counters]
    names = [[each.kernels[0].name for each in result.all_evidence()] for result in results]
    assert names == [["of call 1", "of call 2"], ["of call 3"], ["of call 4"]]


def run(steps: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation whose timings, one after the other, give or raise these."""

    def step(*arguments: Any) -> Any:
        now = steps.pop(0)
        if isinstance(now, Exception):
            raise now
        return now

    larger = SPEC._replace(calls=64)
    for name, value in {
        "_time_all": step,
        "_check": lambda *a: None,
        "_window_specs": lambda *a: ([SPEC], [SPEC._replace(launch_mode="stream")]),
        "_enlarged": lambda *a: [larger],
    }.items():
        monkeypatch.setattr(evaluation, name, value)
    monkeypatch.setattr(buffers, "reserve_for", lambda *a, **k: None)
    monkeypatch.setattr(building, "build", lambda *a: None)
    monkeypatch.setattr(building, "built", lambda *a: ([], []))
    evaluation.run(CONTEXT, "gpu", start, Anchor(lambda: 100.0, 0.03), lambda text: None)


def test_others_on_the_gpu_are_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where calls are timed again because they had stalled."""
    steps = [Unqueued("timed_out", "too many kernels", shape=SHAPE), NotAloneError([7], "")]
    with pytest.raises(NotAloneError):
        run(steps, monkeypatch)


@pytest.mark.parametrize("timed_before", [True, False])
def test_a_stall_is_the_verdict_only_until_the_calls_were_timed(timed_before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of a stuck worker may keep the next from starting. Once all was timed, a failure is the machine's."""
    stalled, failure = Unqueued("timed_out", "too many kernels", shape=SHAPE), SandboxError("no process could be started")
    done = [ProcessResult((TIMED,), (), (100.0, 100.0))]
    steps: list[Any] = [stalled, done, failure] if timed_before else [stalled, failure]
    with pytest.raises(SandboxError if timed_before else Unqueued) as caught:
        run(steps, monkeypatch)
    assert caught.value is (failure if timed_before else stalled)
    assert steps == []
