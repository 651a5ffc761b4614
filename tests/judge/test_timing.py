"""Timing: retries of a disturbed shape, the limit on one worker, the anchor and the stopwatch."""

import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from command import needs_sandbox

pytest.importorskip("torch")

from submission import ATTACKS, GIVEN, source_of, submitted

from arena import catalog, judge
from arena.cli.render import show_score
from arena.errors import JudgeError
from arena.files import documents
from arena.judge import evaluation, scoring
from arena.judge import timing as judge_timing
from arena.judge.context import Stopwatch
from arena.judge.device.detect import open_device
from arena.judge.overhead import Overhead
from arena.judge.rejection import Rejection, refusal_under_way
from arena.judge.sampling import CPU
from arena.judge.sets import Disturbed, Late
from arena.judge.window import WindowSpec
from arena.sandboxes import bwrap
from arena.schema import Problem

PROBLEM = documents.read_yaml(GIVEN / "problem.yaml", Problem, name="given")
SHAPE = {"R": 8, "N": 16}
CPU_ATTACKS = ATTACKS / "cpu"
HONEST = source_of(CPU_ATTACKS / "honest.py")
QUICK = replace(CPU, processes=1, min_windows=3, max_windows=3, empty_windows=3)


UNUSED: Any = None
"""Stands for an argument that the replaced timing never reads."""


def beside(*pids: int) -> Any:
    """What timing knows of a GPU on which these processes compute, too."""
    return SimpleNamespace(strangers=lambda least_bytes: list(pids))


RAN = "; ".join(f"a process ran {number}" for number in (1, 2, 3, 4))
TRIES = f"Timing was disturbed in each of 4 tries: {RAN}"


class FakeTiming:
    """Replaces the timing of one shape; the first `disturbed` tries are disturbed."""

    def __init__(self, disturbed, reason=Disturbed):
        self.left, self.reason = disturbed, reason
        self.tries = 0

    def __call__(self, *_):
        self.tries += 1
        if self.tries <= self.left:
            raise self.reason("cheated", f"a process ran {self.tries}")
        return judge_timing.ShapeTiming("call", 8, (8e-3,), (), Overhead(0.0), {})


@pytest.mark.parametrize("disturbed", [0, 1, judge_timing.TIMING_TRIES - 1])
def test_disturbed_shape_is_retried(disturbed, monkeypatch):
    monkeypatch.setattr(judge_timing, "_time_once", timing := FakeTiming(disturbed))
    monkeypatch.setattr(judge_timing, "RETRY_PAUSE_S", 0.0)
    timed = judge_timing.time_shape(UNUSED, UNUSED, SHAPE, "call", 8, UNUSED)
    assert timed.disturbed == tuple(f"a process ran {number + 1}" for number in range(disturbed))
    assert timing.tries == disturbed + 1


def test_shape_disturbed_in_every_try_is_a_cheat(monkeypatch):
    monkeypatch.setattr(judge_timing, "_time_once", timing := FakeTiming(judge_timing.TIMING_TRIES))
    monkeypatch.setattr(judge_timing, "RETRY_PAUSE_S", 0.0)
    with pytest.raises(Rejection) as caught:
        judge_timing.time_shape(beside(), UNUSED, SHAPE, "call", 8, UNUSED)
    assert caught.value.message == TRIES
    assert timing.tries == judge_timing.TIMING_TRIES


def test_others_on_the_gpu_excuse_no_process_that_ran(monkeypatch):
    """What others compute takes none of its processor time."""
    monkeypatch.setattr(judge_timing, "_time_once", FakeTiming(judge_timing.TIMING_TRIES))
    monkeypatch.setattr(judge_timing, "RETRY_PAUSE_S", 0.0)
    with pytest.raises(Rejection, match="disturbed in each of 4 tries"):
        judge_timing.time_shape(beside(4711), UNUSED, SHAPE, "call", 8, UNUSED)


def test_disturbed_beside_others_on_the_gpu_is_no_verdict(monkeypatch):
    """A program that a person started there meanwhile is not the submission's."""
    monkeypatch.setattr(judge_timing, "_time_once", FakeTiming(judge_timing.TIMING_TRIES, Late))
    monkeypatch.setattr(judge_timing, "RETRY_PAUSE_S", 0.0)
    with pytest.raises(JudgeError) as caught:
        judge_timing.time_shape(beside(4711, 4712), UNUSED, SHAPE, "call", 8, UNUSED)
    text = "Other processes use the GPU (pid 4711, 4712): a score needs it alone. End them or choose another GPU"
    assert str(caught.value) == f"{text}. {TRIES}"
    assert refusal_under_way(caught.value) is None


def scored(source, **sampling):
    how: dict[str, Any] = {"digest": "", "sandbox": bwrap, "sampling": replace(QUICK, **sampling), "folder": GIVEN}
    return judge.score(submitted(source), PROBLEM, catalog.hardware("cpu"), **how)


@needs_sandbox
@pytest.mark.slow
@pytest.mark.timing
def test_a_slow_start_buys_no_short_windows():
    many = {"min_windows": 9, "max_windows": 9}  # the first ones are slow, too
    honest, slow = (scored(source_of(CPU_ATTACKS / f"{name}.py"), **many) for name in ("honest", "slows_its_warm_up"))
    assert slow.verdict == honest.verdict == "passed", (slow.message, honest.message)
    assert min(honest.shapes[0].calls_per_window, slow.shapes[0].calls_per_window) > 2 * QUICK.min_calls
    assert "calls were faster than when the judge chose their number" in slow.shapes[0].disturbed[0]


@needs_sandbox
@pytest.mark.slow
@pytest.mark.timing
def test_a_start_that_is_slow_in_stages_buys_none_either():
    many = {"min_windows": 9, "max_windows": 9}
    honest, slow = (scored(source_of(CPU_ATTACKS / f"{name}.py"), **many) for name in ("honest", "slows_in_stages"))
    assert slow.verdict == honest.verdict == "passed", (slow.message, honest.message)
    assert slow.shapes[0].calls_per_window >= honest.shapes[0].calls_per_window
    assert "calls were faster than when the judge chose their number" in slow.shapes[0].disturbed[0]


STAGED = """
import time

honest, made, places = solution, 0, set()


def solution(*tensors):
    global made
    made += 1
    first = len(tensors[0]) == 8
    if first:
        places.add(tensors[0].data_ptr())
    end_s = time.perf_counter() + ((2e-3 if made < 60 else 0) if first else (2e-3 if len(places) < 40 else 0))
    honest(*tensors)
    while time.perf_counter() < end_s:
        pass
"""
"""The first shape is slow while the judge counts calls, the second until the first has been given more sets than in a trial."""


@needs_sandbox
@pytest.mark.slow
@pytest.mark.timing
def test_a_shape_that_waits_for_another_has_as_many_calls():
    rows = PROBLEM.shapes["cpu"][0]
    two = PROBLEM.model_copy(update={"shapes": {**PROBLEM.shapes, "cpu": ({**rows, "R": 8}, {**rows, "R": 16})}})
    how: dict[str, Any] = {"digest": "", "sandbox": bwrap, "folder": GIVEN}
    how["sampling"] = replace(QUICK, min_windows=9, max_windows=9)  # the first ones are slow, too
    result = judge.score(submitted(HONEST + STAGED), two, catalog.hardware("cpu"), **how)
    assert result.verdict == "passed", result.message
    assert all(shape.calls_per_window > 4 * QUICK.min_calls for shape in result.shapes)
    assert all("timed again with" in shape.disturbed[0] for shape in result.shapes)


@pytest.mark.slow
def test_the_idle_rate_is_usual_from_the_first_process_on(monkeypatch):
    rates = list[float]()

    def run(context, profile, start, anchor, report, **named):
        rates.append(anchor._fastest_gb_s)
        raise Rejection("crashed", "stopped here")

    monkeypatch.setattr(scoring, "_idle_gb_s", lambda device, *, shared: 123.0)
    monkeypatch.setattr(evaluation, "run", run)
    assert scored(HONEST).message == "stopped here"
    assert rates == [123.0]


@needs_sandbox
@pytest.mark.parametrize("reasons", ["none", "unknown", "hardware slowdown, power brake"])
def test_a_score_on_a_slowed_device_is_unsteady(reasons, monkeypatch, capsys):
    """Also where it was slowed down between the first look and the last only, and what was timed does not scatter."""
    looks = iter(range(1000))

    @contextmanager
    def slowed(*hardware, shared):
        def conditions():
            return {"throttle": reasons if next(looks) == 1 else "none"}

        with open_device(*hardware, shared=shared) as device:
            yield replace(device, conditions=conditions)

    monkeypatch.setattr(scoring, "open_device", slowed)
    result = scored(HONEST, steady_half_width=9.0, steady_apart=9.0)
    expected = "none" if reasons in ("none", "unknown") else reasons
    assert result.verdict == "passed", result.message
    assert result.environment["throttle"] == expected
    assert result.unsteady == (expected != "none") and result.review_suggested >= result.unsteady
    show_score(result)
    assert (
        f"the driver slowed the device down meanwhile ({reasons})" in " ".join(capsys.readouterr().err.split())
    ) == result.unsteady


@needs_sandbox
@pytest.mark.parametrize(
    ("message", "pids", "verdict"),
    [
        ("solution() raised an exception; on stderr: CUDA out of memory", {4711: 2 << 30}, "judge_failed"),
        ("solution() raised an exception; on stderr: CUDA out of memory", {4711: 512 << 20}, "crashed"),
        ("solution() raised an exception; on stderr: CUDA out of memory", {}, "crashed"),
        ("solution() raised an exception; on stderr: MemoryError", {4711: 2 << 30}, "crashed"),
        ("solution() raised an exception; on stderr: ZeroDivisionError", {4711: 2 << 30}, "crashed"),
    ],
)
def test_memory_that_a_person_may_have_taken_is_no_verdict(message, pids, verdict, monkeypatch):
    @contextmanager
    def beside_others(*hardware, shared):
        with open_device(*hardware, shared=shared) as device:
            yield replace(device, strangers=lambda least_bytes: [pid for pid, held in pids.items() if held >= least_bytes])

    def refused(*arguments, **named):
        raise Rejection("crashed", message)

    monkeypatch.setattr(scoring, "open_device", beside_others)
    monkeypatch.setattr(evaluation, "run", refused)
    result = scored(HONEST)
    assert result.verdict == verdict
    assert message in result.message and ("pid 4711" in result.message) == (verdict == "judge_failed")


@pytest.mark.parametrize(
    ("calls_ms", "calls"),
    [
        ((0.5, 0.4, 0.1), [16, 16, 16]),
        ((0.5, 0.3, 0.1), [1024, 1024, 16]),
        ((100.0, 0.3, 0.5), [150, 1024, 16]),
        ((9000.0, 0.3, 0.5), [16, 1024, 16]),
    ],
    ids=["a latency shape alone", "all scored", "as many as a window may hold", "very slow"],
)
def test_where_one_shape_was_faster_all_have_the_most_calls(calls_ms, calls):
    """None is left for a second stage."""
    fill: Any = {"calls_that_fill": lambda shape, call_s: round(CPU.window_s / call_s), "most_calls": lambda shape: CPU.max_calls}
    context: Any = SimpleNamespace(**fill, sampling=CPU)
    overhead = Overhead(0.0)
    shapes = [judge_timing.ShapeTiming("call", 16, (16 * call_ms / 1e3,), (), overhead, {}) for call_ms in calls_ms]
    specs = [WindowSpec("call", 16)] * 3
    # The second process does not time the last shape, which is not scored.
    results = [evaluation.ProcessResult(tuple(some), (), (1.0, 1.0)) for some in (shapes, shapes[:2])]
    found = evaluation._enlarged(context, (SHAPE,) * 2, specs, results)
    assert [spec.calls for spec in found] == calls


def test_windows_that_grew_are_noted():
    before = WindowSpec("graph", 8)
    assert evaluation._faster(before, before) == ()
    assert evaluation._faster(before, WindowSpec("stream", 8)) == (), "without graphs is no faster"
    assert evaluation._faster(before, WindowSpec("stream", 64)) == (
        "calls were faster than when the judge chose their number: timed again with 64 instead of 8",
    )


@pytest.mark.parametrize(("launch_mode", "verified"), [("graph", 2), ("stream", 0)])
def test_captured_windows_of_trial_are_verified(launch_mode, verified, monkeypatch):
    """Calls that are not captured were when the shape was checked."""
    happened = []
    monkeypatch.setattr(judge_timing, "place", lambda *_: SimpleNamespace(count=16))
    for name in ("window", "public_window", "verify"):
        monkeypatch.setattr(judge_timing, name, lambda *_, name=name: happened.append(name))
    worker: Any = SimpleNamespace(resume=lambda: None, order=lambda op, **_: happened.append(op))
    context: Any = SimpleNamespace(
        code=None, problem=None, memory=SimpleNamespace(kind="cuda"), sampling=CPU, seeds=SimpleNamespace(take=lambda count: [1])
    )
    judge_timing.try_window(context, worker, SHAPE, launch_mode, 16)
    assert [happened.count(name) for name in ("window", "public_window", "verify")] == [1, 2, verified]
    assert ("capture" in happened) == (launch_mode == "graph")


@pytest.mark.slow
@needs_sandbox
@pytest.mark.parametrize(("disturbed", "review"), [(0, False), (1, False), (2, True)])
def test_score_records_what_disturbed_it(disturbed, review, monkeypatch, capsys):
    timed, left = judge_timing._time_once, ["a process ran"] * disturbed

    def disturbing(*given):
        if left:
            raise Disturbed("cheated", left.pop())
        return timed(*given)

    monkeypatch.setattr(judge_timing, "_time_once", disturbing)
    result = scored(HONEST)
    assert result.verdict == "passed", result.message
    first, *_ = (shape.disturbed for shape in result.shapes)
    assert first[:disturbed] == ("a process ran",) * disturbed
    assert result.review_suggested == (result.unsteady or any(len(shape.disturbed) > 1 for shape in result.shapes))
    assert result.review_suggested or not review
    show_score(result)
    shown = " ".join(capsys.readouterr().err.split())
    assert shown.count("R=8 N=4096: a process ran") >= disturbed
    assert ("more than once" in shown) == result.review_suggested


def test_windows_beyond_the_audits_never_hold_the_median():
    """A submission may count its windows: careful in the first, which may be audits, and careless from then on."""
    with pytest.raises(ValueError, match="max_windows 6 must be less than twice min_windows 3"):
        replace(CPU, min_windows=3, max_windows=6)
    assert replace(CPU, min_windows=3, max_windows=5)


@pytest.mark.slow
@needs_sandbox
def test_one_worker_has_a_total_time_limit():
    result = scored("import time\n" + HONEST + "\n    time.sleep(0.5)\n", total_limit_s=3.0)
    assert result.verdict == "timed_out"
    assert result.message == "One worker took longer than 3 s for its build, checks and timing together"


def test_inner_phase_pauses_the_outer_one() -> None:
    stopwatch = Stopwatch()
    with stopwatch.phase("check"):
        time.sleep(0.03)
        with stopwatch.phase("build"):
            time.sleep(0.3)
        time.sleep(0.03)
    time.sleep(0.02)
    spent = stopwatch.timings()
    assert 0.06 <= spent.check_s < 0.3 <= spent.build_s
    assert spent.total_s >= spent.check_s + spent.build_s + 0.018  # they are rounded to milliseconds
    assert spent.benchmark_s == spent.evidence_s == 0
