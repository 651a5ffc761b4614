"""On a GPU all workers build at once. Where memory is too short for that, they build again one after the other."""

import threading
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from arena.judge import evaluation
from arena.judge.rejection import Rejection

OUT_OF_MEMORY = "solution() raised an exception; its last line on stderr: torch.OutOfMemoryError: CUDA out of memory."


class Room:
    """Memory for so many workers that build at the same time, each for as long as the others need to begin."""

    def __init__(self, workers: int) -> None:
        self.free, self.most, self.building, self.killed = workers, 0, 0, 0

    @contextmanager
    def taken(self):
        self.building += 1
        self.most = max(self.most, self.building)
        yield
        self.building -= 1

    def worker(self, together: Any, message: str) -> Any:
        def load(limit_s: float) -> None:
            with self.taken():
                if together:
                    together.wait()
                if self.building > self.free:
                    raise Rejection("crashed", message)

        def kill() -> None:
            self.killed += 1

        return SimpleNamespace(load=load, freeze=lambda: None, begin_kill=kill)


def built(room: Room, *, at_once: bool, message: str = OUT_OF_MEMORY, kind: str = "cuda") -> None:
    memory = SimpleNamespace(kind=kind, use_in_thread=lambda: None)
    stopwatch, sampling = SimpleNamespace(phase=lambda _: nullcontext()), SimpleNamespace(build_limit_s=1.0)
    context: Any = SimpleNamespace(memory=memory, stopwatch=stopwatch, sampling=sampling)
    together = threading.Barrier(3, timeout=10) if at_once and kind == "cuda" else None
    jobs: Any = [(room.worker(together, message), ()) for _ in range(3)]
    evaluation._build(context, jobs, None, lambda _: None, at_once=at_once)


def test_memory_that_is_short_for_all_is_no_verdict():
    room = Room(workers=1)
    with pytest.raises(evaluation.Crowded, match="CUDA out of memory") as crowded:
        built(room, at_once=True)
    assert (crowded.value.verdict, room.killed) == ("crashed", 3)
    one_by_one = Room(workers=1)
    built(one_by_one, at_once=False)
    assert one_by_one.most == 1


@pytest.mark.parametrize(
    ("at_once", "message", "kind"),
    [
        (True, "solution() raised an exception; ZeroDivisionError", "cuda"),
        (False, OUT_OF_MEMORY, "cuda"),
        (True, OUT_OF_MEMORY, "host"),
    ],
    ids=["another failure", "alone", "on a CPU"],
)
def test_any_other_failure_is_the_verdict(at_once: bool, message: str, kind: str):
    with pytest.raises(Rejection) as refused:
        built(Room(workers=0), at_once=at_once, message=message, kind=kind)
    assert type(refused.value) is Rejection


@pytest.mark.parametrize("fits_alone", [True, False])
def test_a_crowded_build_is_made_again_one_by_one(monkeypatch: pytest.MonkeyPatch, fits_alone: bool):
    tried, said, restarted = list[bool](), list[str](), list[int]()

    def run(*arguments: Any, at_once: bool) -> list[str]:
        tried.append(at_once)
        if at_once or not fits_alone:
            raise (evaluation.Crowded if at_once else Rejection)("crashed", OUT_OF_MEMORY)
        return ["the result"]

    monkeypatch.setattr(evaluation, "_run", run)
    unused: Any = None
    counters: Any = SimpleNamespace(restart=lambda: restarted.append(1))

    def scored() -> Any:
        return evaluation.run(unused, "gpu", unused, unused, said.append, counters=counters)

    if fits_alone:
        assert scored() == ["the result"]
    else:
        with pytest.raises(Rejection) as refused:
            scored()
        assert refused.value.__context__ is None  # a failure of the judge in the second try must not count as the first
    assert (tried, restarted) == ([True, False], [1])
    assert said == [f"building again, one worker after the other, since memory ran out: {OUT_OF_MEMORY}"]
