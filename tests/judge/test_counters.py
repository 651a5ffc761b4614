"""The worker that reads the hardware's counters: its failure is a note, unless its processes do not die."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from arena.errors import SandboxError
from arena.judge import kernels
from arena.judge.rejection import Rejection
from arena.judge.window import WindowSpec
from arena.judge.worker_client import Uncapturable
from arena.schema import Evidence

LIMITS = SimpleNamespace(build_limit_s=1.0, first_call_limit_s=1.0, call_limit_s=1.0)
CONTEXT: Any = SimpleNamespace(
    memory=None, sampling=LIMITS, problem=SimpleNamespace(arithmetic=None, excluded_arithmetic=("fp8",))
)
FOUND = (Evidence(shape={"N": 1}),)
SPECS = [WindowSpec("graph", 8)] * 2


class Fake:
    """A worker that notes what happens to it."""

    def __init__(self, fails: Exception | None = None, dies: Exception | None = None, prints: str = "") -> None:
        self.happened: list[str] = []
        self.counted: list[object] = []
        self.modes: list[object] = []
        self.launches = [b"2\tattend\n1\tjoin\n\0", b"3\tattend\n\0"]
        self.fails, self.dies, self.prints = fails, dies, prints

    def wait_until_ready(self, memory: object) -> None:
        self.happened.append("ready")

    def load(self, limit_s: float) -> None:
        self.happened.append("load")
        if self.fails:
            raise self.fails

    def set_aside(self) -> None:
        self.happened.append("set aside")

    def begin_kill(self) -> None:
        self.happened.append("kill")

    def resume(self) -> None:
        self.happened.append("resume")

    def order(self, op: str, **fields: object) -> None:
        self.happened.append(op)
        self.counted += [fields["set"]] if op == "count" else []
        self.modes += [fields["launch_mode"]] if "launch_mode" in fields else []
        if self.fails:
            raise self.fails
        if op == "profile":
            os.pwrite(fields["fds"][0], self.launches.pop(0), 0)  # type: ignore[index]

    def finish(self, limit_s: float) -> bytes:
        self.happened.append("finish")
        return self.prints.encode()


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Counters whose workers are these fakes, one after the other."""
    monkeypatch.setattr(kernels, "counters_command", lambda **_: ("ncu",))
    monkeypatch.setattr(kernels, "_prepared", lambda *_: 0)
    monkeypatch.setattr(kernels, "release", lambda _, worker: worker.happened.append("release"))
    with ExitStack() as stack:

        def made(*workers: Fake | Exception) -> kernels.Counters:
            left = list(workers)

            @contextmanager
            def start(**_: object) -> Iterator[Any]:
                worker = left.pop(0)
                if isinstance(worker, Exception):
                    raise worker
                try:
                    yield worker
                finally:
                    worker.happened.append("end")
                if worker.dies:
                    raise worker.dies

            return kernels.Counters(CONTEXT, start, stack)

        yield made


def test_it_builds_once_and_is_stopped(counters: Any) -> None:
    worker = Fake()
    found = counters(worker)
    found.build(())
    found.build(())
    assert worker.happened == ["ready", "count", "load", "set aside"]
    assert worker.counted == [None], "the mark alone, before the submission"
    found.begin_kill()
    assert worker.happened[-1] == "kill"


@pytest.mark.parametrize("failure", [Rejection("crashed", "it raised"), MemoryError("it raised"), OSError("it raised")])
def test_a_failed_build_is_a_note(counters: Any, failure: Exception) -> None:
    worker = Fake(fails=failure)
    found = counters(worker)
    found.build(())
    assert worker.happened[-1] == "end"
    found.begin_kill()
    assert "kill" not in worker.happened, "it has ended"
    assert [each.note for each in found.added_to(FOUND)] == ["the worker for the counters failed: it raised"]


def test_a_worker_that_does_not_start_is_a_note(counters: Any) -> None:
    found = counters(SandboxError("no space"), SandboxError("no room"))
    found.build(())
    found.restart()
    assert [each.note for each in found.added_to(FOUND)] == ["the worker for the counters did not start: no room"]


def test_processes_that_do_not_die_are_the_verdict(counters: Any) -> None:
    """Nothing may be timed beside them."""
    found = counters(Fake(fails=Rejection("crashed", "it raised"), dies=Rejection("timed_out", "too long to die")))
    with pytest.raises(Rejection, match="too long to die"):
        found.build(())


def test_one_that_lacked_memory_beside_others_may_build_again(counters: Any) -> None:
    first, second = Fake(fails=Rejection("crashed", "it raised: CUDA out of memory")), Fake()
    found = counters(first, second)
    found.build(())
    assert found.crowded
    found.restart()
    found.build(())
    assert (found.crowded, second.happened) == (False, ["ready", "count", "load", "set aside"])


def test_a_restart_ends_the_one_that_has_the_submission(counters: Any) -> None:
    first, second = Fake(), Fake()
    found = counters(first, second)
    found.build(())
    found.restart()
    assert first.happened[-1] == "end"
    found.build(())
    assert second.happened == ["ready", "count", "load", "set aside"]


def profiled(worker: Any, shapes: Any, counters: kernels.Counters | None) -> tuple[Evidence, ...]:
    """What `worker` and `counters` find of calls that are captured."""
    return kernels.launched_kernels(CONTEXT, worker, shapes, SPECS, counters)


SHAPES = ({"N": 1}, {"N": 2})
PRINTED = """"ID","Kernel Name","Metric Name","Metric Value"
"0","spin_kernel","dram__bytes_read.sum","1"
"1","spin_kernel","dram__bytes_read.sum","1"
"2","attend","dram__bytes_read.sum","1000"
"3","spin_kernel","dram__bytes_read.sum","1"
"4","attend","dram__bytes_read.sum","3000"
"""


def test_counters_are_read_when_the_profiled_worker_is_done(counters: Any) -> None:
    """A process that is timed again is profiled again, and the counters are read once."""
    timed, counted = Fake(), Fake(prints=PRINTED)
    timed.happened = counted.happened
    found = counters(counted)
    found.build(())
    del counted.happened[:]
    evidence = profiled(timed, SHAPES, found)
    calls = ["count", "count", "finish", "end"]
    assert counted.happened == ["resume", "start_profiler", "profile", "profile", "release", "trim", *calls]
    assert [(each.dram_read_bytes, each.proof) for each in evidence] == [(1000, "counters"), (3000, "counters")]
    assert profiled(Fake(), SHAPES, found) == evidence
    assert counted.happened.count("count") == 2


@pytest.mark.parametrize("failure", [Rejection("crashed", "it ended"), MemoryError("it ended"), RuntimeError("it ended")])
def test_a_profiler_that_fails_is_a_note(counters: Any, failure: Exception) -> None:
    """The timing is over: the score stands, and has the counters."""
    timed, found = Fake(fails=failure), counters(Fake(prints=PRINTED))
    found.build(())
    evidence = profiled(timed, SHAPES, found)
    assert timed.happened == ["resume", "start_profiler", "release", "trim"], "none is made without a profiler"
    assert [each.note for each in evidence] == ["the call under the profiler failed: it ended"] * 2
    assert [each.dram_read_bytes for each in evidence] == [1000, 3000]


def test_each_call_has_its_own_kernels(counters: Any) -> None:
    """And is made as timed ones are, in both workers: a submission sees whether it is captured."""
    timed, counted = Fake(), Fake(prints=PRINTED)
    found = counters(counted)
    found.build(())
    evidence = profiled(timed, SHAPES, found)
    assert [[(each.name, each.launches) for each in one.kernels] for one in evidence] == [
        [("attend", 2), ("join", 1)],
        [("attend", 3)],
    ]
    assert [each.note for each in evidence] == ["", ""]
    assert (timed.modes, counted.modes) == (["graph"] * 2, ["graph"] * 2)


def test_no_order_follows_a_failed_capture(counters: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It spoils the worker. The counters' worker has captures of its own."""

    def prepared(context: Any, worker: Any, *_: object) -> int:
        if worker is timed:
            raise Uncapturable("; on stderr: not now")
        return 0

    monkeypatch.setattr(kernels, "_prepared", prepared)
    timed, counted = Fake(), Fake(prints=PRINTED)
    found = counters(counted)
    found.build(())
    evidence = profiled(timed, SHAPES, found)
    assert timed.happened == ["resume", "start_profiler"]
    note = "the call under the profiler failed: it could not be captured; on stderr: not now"
    assert [each.note for each in evidence] == [note] * 2
    assert [each.dram_read_bytes for each in evidence] == [1000, 3000]


def test_an_absent_library_that_is_called_now_is_the_verdict(counters: Any) -> None:
    with pytest.raises(Rejection, match="an excluded library"):
        profiled(Fake(fails=Rejection("forbidden", "an excluded library")), SHAPES, None)


def test_no_order_follows_one_without_a_reply(counters: Any) -> None:
    """A late reply would look like a forged one."""
    timed = Fake(fails=Rejection("timed_out", "no reply in 60 s"))
    evidence = profiled(timed, SHAPES, None)
    assert timed.happened[-1] == "start_profiler"
    assert [each.note for each in evidence] == ["the call under the profiler failed: no reply in 60 s"] * 2


def test_tampering_under_the_profiler_is_the_verdict(counters: Any) -> None:
    with pytest.raises(Rejection, match="a forged reply"):
        profiled(Fake(fails=Rejection("cheated", "a forged reply")), SHAPES, None)


def test_calls_that_fail_under_the_counters_are_a_note(counters: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise MemoryError

    monkeypatch.setattr(kernels, "_prepared", fails)
    counted = Fake()
    found = counters(counted)
    found.build(())
    found.read(SHAPES, SPECS)
    assert counted.happened[-1] == "end"
    assert [each.note for each in found.added_to(FOUND)] == ["the calls under the counters failed: MemoryError"]


def test_counters_of_a_build_that_failed_are_a_note(counters: Any) -> None:
    found = counters(Fake(fails=Rejection("crashed", "it raised")))
    found.build(())
    worker = Fake()
    worker.launches = [b"\0", b"\0"]
    notes = [each.note for each in profiled(worker, SHAPES, found)]
    assert notes == [f"{kernels.UNSEEN}; the worker for the counters failed: it raised"] * 2


def test_a_restart_beside_undead_processes_is_the_verdict(counters: Any) -> None:
    """Nothing may be timed beside them, so a restart is the verdict."""
    found = counters(Fake(prints=PRINTED, dies=Rejection("timed_out", "too long to die")), Fake())
    found.build(())
    found.read(SHAPES, SPECS)
    evidence = found.added_to((*FOUND, *FOUND))
    assert [each.note for each in evidence] == ["the worker for the counters did not end: too long to die"] * 2
    assert [each.dram_read_bytes for each in evidence] == [1000, 3000], "what was read still counts"
    with pytest.raises(Rejection, match="too long to die"):
        found.restart()


def test_a_restart_forgets_what_was_read(counters: Any) -> None:
    found = counters(Fake(prints=PRINTED), Fake(prints=PRINTED.replace("1000", "5000")))

    def first_read() -> float:
        found.build(())
        found.read(SHAPES, SPECS)
        return float(found.added_to((*FOUND, *FOUND))[0].dram_read_bytes)

    assert first_read() == 1000
    found.restart()
    assert first_read() == 5000
