"""On a GPU all workers build at once. Where memory is too short for that, others build in the place of those that failed."""

import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from arena.errors import SandboxError  # noqa: E402
from arena.judge import building  # noqa: E402
from arena.judge.building import OwnWorker  # noqa: E402
from arena.judge.rejection import Rejection  # noqa: E402

LINE = "solution() raised an exception; on stderr: torch.OutOfMemoryError: CUDA out of memory."
WORKERS = 3


class Room:
    """Memory for some workers that build at the same time."""

    def __init__(self, workers: int, failure: Exception) -> None:
        self.workers, self.failure, self.building, self.lock = workers, failure, 0, threading.Lock()
        self.together: threading.Barrier | None = threading.Barrier(WORKERS, timeout=10)

    def load(self) -> None:
        """What a worker does when it builds."""
        with self.lock:
            self.building += 1
        try:
            if self.together:
                self.together.wait()
            time.sleep(0.05)
            if self.building > self.workers:
                raise self.failure
        finally:
            if self.together:
                self.together.wait()  # all fail, or none
            with self.lock:
                self.building -= 1


class Worker:
    """One that notes what happens to it."""

    def __init__(self, happened: list[str], room: Room) -> None:
        self.happened, self.room = happened, room

    def load(self, limit_s: float) -> None:
        self.happened.append("load")
        self.room.load()

    def set_aside(self) -> None:
        self.happened.append("set aside")

    def begin_kill(self) -> None:
        self.happened.append("kill")

    def charge(self, error: Exception) -> Rejection:
        return Rejection("crashed", f"charged: {error}")


def own_worker(room: Room, end_fails: Exception | None = None, start_fails: Exception | None = None) -> OwnWorker:
    """A worker, and those that come in its place. All note what happens in one list, `happened` of each."""
    happened = list[str]()

    @contextmanager
    def start() -> Iterator[Any]:
        if happened:
            room.together = None  # from here on one after the other
            if start_fails:
                raise start_fails
        happened.append("start")
        yield Worker(happened, room)
        happened.append("end")
        if end_fails:
            raise end_fails

    return OwnWorker(start, lambda worker: happened.append("prepare"))


def happened(workers: list[OwnWorker]) -> list[list[str]]:
    """To each, and to those in its place."""
    return [own.worker.happened for own in workers]  # type: ignore[attr-defined]


def built(workers: list[OwnWorker], kind: str = "cuda", counters: Any = None) -> tuple[list[str], list[str]]:
    """Build in all of them: what the judge reports, and what it notes in the record."""
    memory = SimpleNamespace(kind=kind, use_in_thread=lambda: None)
    sampling = SimpleNamespace(build_limit_s=1.0, call_limit_s=1.0)
    stopwatch, problem = SimpleNamespace(phase=lambda _: nullcontext()), SimpleNamespace(shapes={"gpu": ()})
    context: Any = SimpleNamespace(memory=memory, stopwatch=stopwatch, sampling=sampling, problem=problem, notes=[])
    reported, jobs = list[str](), [(worker, ()) for worker in workers]
    building.build(context, jobs, counters, reported.append)  # type: ignore[arg-type]
    return reported, context.notes


@pytest.mark.parametrize("failure", [Rejection("crashed", LINE), torch.OutOfMemoryError("cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY")])
def test_memory_that_is_short_for_all_at_once_is_no_verdict(failure: Exception) -> None:
    """Be it a worker or the judge, who makes its inputs, that found too little."""
    room = Room(1, failure)
    workers = [own_worker(room) for _ in range(WORKERS)]
    reported, notes = built(workers)
    assert reported == ["building", "building again, one after the other: 3 of 3 workers at once reported that memory was short"]
    assert notes == ["builds were repeated, one after the other: 3 of 3 workers at once reported that memory was short"]
    assert happened(workers) == [["start", "load", "end", "start", "prepare", "load", "set aside"]] * 3
    assert all(own.replaced for own in workers)


def test_memory_that_is_short_for_one_alone_is_the_first_verdict() -> None:
    room = Room(0, Rejection("crashed", LINE))
    workers = [own_worker(room) for _ in range(WORKERS)]
    with pytest.raises(Rejection, match="CUDA out of memory"):
        built(workers)
    assert [each.count("load") for each in happened(workers)] == [2, 1, 1]
    assert all(each[-1] == "kill" for each in happened(workers))


def test_one_that_builds_alone_builds_once() -> None:
    """As when a process is timed again: nothing else would be different."""
    room = Room(0, Rejection("crashed", LINE))
    room.together = None
    own = own_worker(room)
    with pytest.raises(Rejection, match="CUDA out of memory"):
        built([own])
    assert not own.replaced and happened([own]) == [["start", "load", "kill"]]


@pytest.mark.parametrize(
    "later", [Rejection("crashed", "No order could be sent"), SandboxError("not stopped"), RuntimeError("CUDA")]
)
@pytest.mark.parametrize("when", ["end_fails", "start_fails"])
@pytest.mark.parametrize("first", [Rejection("crashed", LINE), torch.OutOfMemoryError("CUDA out of memory")])
def test_no_later_failure_replaces_a_verdict(first: Exception, when: str, later: Exception) -> None:
    """The worker may have processes that do not end, or another may not start, which a loaded one can bring about: a failure of
    the judge would not count. The judge's own shortage of memory is charged where a submission is loaded. Whichever it is."""
    for failing in range(WORKERS):
        room = Room(1, first)
        workers = [own_worker(room, **({when: later} if number == failing else {})) for number in range(WORKERS)]
        with pytest.raises(Rejection, match="CUDA out of memory") as refused:
            built(workers)
        assert refused.value.verdict == "crashed"


def test_a_build_that_failed_keeps_no_memory() -> None:
    """What was on the stack where it failed would be missing when the others build again."""
    held = list[weakref.ref[Any]]()

    class Tensor:
        pass

    class Failing(Room):
        def load(self) -> None:
            inputs = Tensor()
            held.append(weakref.ref(inputs))
            if self.together:
                self.together.wait()
                raise torch.OutOfMemoryError("CUDA out of memory")
            assert not any(each() for each in held[:WORKERS])

    room = Failing(1, Exception())
    built([own_worker(room) for _ in range(WORKERS)])
    assert len(held) == 2 * WORKERS


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Rejection("crashed", "ZeroDivisionError"), "cuda"),
        (Rejection("forbidden", LINE), "cuda"),
        (Rejection("incorrect", LINE), "cuda"),
        (RuntimeError("a fault of the judge"), "cuda"),
        (Rejection("crashed", LINE), "host"),
    ],
    ids=["another crash", "forbidden", "incorrect", "the judge", "one by one on a CPU"],
)
def test_any_other_failure_is_the_verdict(failure: Exception, kind: str) -> None:
    room = Room(0, failure)
    if kind == "host":
        room.together = None
    workers = [own_worker(room) for _ in range(WORKERS)]
    with pytest.raises(type(failure)) as refused:
        built(workers, kind)
    assert refused.value is failure
    assert not any(own.replaced for own in workers)


@pytest.mark.parametrize("crowded", [True, False])
def test_the_counters_build_again_alone_too(crowded: bool) -> None:
    counted = list[str]()
    counters = SimpleNamespace(crowded=False)

    def build(shapes: object) -> None:
        counters.crowded = crowded and not counted
        counted.append("build")

    counters.build, counters.restart = build, lambda: counted.append("restart")
    room = Room(WORKERS, Rejection("crashed", LINE))
    _, notes = built([own_worker(room) for _ in range(WORKERS)], counters=counters)
    assert notes == ["the build of the counters' worker was repeated: it reported that memory was short"] * crowded
    assert counted == (["build", "restart", "build"] if crowded else ["build"])
