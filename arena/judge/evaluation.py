"""All that is done with one submission: checked in a first worker, timed in fresh ones, and looked at once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from arena.judge import kernels, timing
from arena.judge.rejection import Rejection
from arena.judge.worker_client import Uncapturable, Worker, ours
from arena.schema import Evidence, LaunchMode, Profile

Report = Callable[[str], None]
"""Told what the judge is doing, for a person to read."""
Start = Callable[[], AbstractContextManager[Worker]]
"""Starts a fresh worker with the submission."""
Shape = Mapping[str, int]
SETTLING, SETTLED = 12, 5
"""Readings of the anchor at most, until two in a row differ by less than this part of the drift that is allowed."""


class Way(NamedTuple):
    """How a shape is timed."""

    launch_mode: LaunchMode
    calls: int
    """In a window."""


@dataclass(frozen=True)
class Block:
    """What one process said about every timed shape."""

    timed: tuple[timing.Timed, ...]
    evidence: tuple[Evidence, ...]
    """From the last process only, after its timing."""
    anchors_gb_s: tuple[float, float]
    """A trusted copy's rate before and after: how steady the device was."""
    dropped: tuple[tuple[float, float], ...] = ()
    """The same of processes that were timed before in its place, while the device did not keep its speed."""

    def drift(self) -> float:
        """How far the device's own speed moved meanwhile, relative."""
        before, after = self.anchors_gb_s
        return abs(after / before - 1)


def run(subject: timing.Subject, profile: Profile, start: Start, anchor: Callable[[], float], report: Report) -> list[Block]:
    """One block for each timed process. Refusal when the submission fails."""
    scored, shapes, kind = subject.problem.shapes[profile], subject.problem.timed(profile), subject.memory.kind
    with ExitStack() as stack:
        # A machine with a GPU has cores to spare: these import torch while the first worker is checked.
        crew = _crew(subject, start, stack) if kind == "cuda" else []
        with start() as worker:
            worker.greet(kind)
            _load(subject, worker)
            with subject.clock.phase("check"), theirs():
                _check(subject, worker, (*shapes, *subject.code.extra_shapes), report)
            with subject.clock.phase("benchmark"), theirs():
                ways = _ways(subject, worker, scored, shapes[len(scored) :])
        crew = crew or _crew(subject, start, stack)
        for _, worker in crew:
            worker.greet(kind)
        blocks = []
        for number, (own, worker) in enumerate(crew, start=1):
            report(f"timing, process {number} of {len(crew)}")
            what = (anchor, shapes, ways, len(scored), number == len(crew) and kind == "cuda")
            with own:
                block = _block(subject, worker, *what)
            for _ in range(subject.plan.repeats):
                if block.drift() <= subject.plan.drift:
                    break
                report(f"timing, process {number} of {len(crew)} again: the device did not keep its speed")
                dropped = (*block.dropped, block.anchors_gb_s)
                with start() as another:
                    another.greet(kind)
                    block = replace(_block(subject, another, *what), dropped=dropped)
            blocks.append(block)
    return blocks


def _crew(subject: timing.Subject, start: Start, stack: ExitStack) -> list[tuple[ExitStack, Worker]]:
    """The workers to be timed, started together, since none has the submission yet; leaving its own stack ends each."""
    crew = []
    for _ in range(subject.plan.processes):
        own = stack.enter_context(ExitStack())
        crew.append((own, own.enter_context(start())))
    return crew


def _block(
    subject: timing.Subject,
    worker: Worker,
    anchor: Callable[[], float],
    shapes: tuple[Shape, ...],
    ways: list[Way],
    scored: int,
    look: bool,
) -> Block:
    """Every shape timed in one fresh worker; with `look`, one more call on the first ones, which are scored, is looked at."""
    before_gb_s = _settled(anchor, subject.plan.drift)
    with subject.clock.phase("benchmark"), ours():
        quiet = [timing.quiet(subject, worker, shape, *way) for shape, way in zip(shapes, ways, strict=True)]
    _load(subject, worker)
    todo = [(shape, *way, own) for shape, way, own in zip(shapes, ways, quiet, strict=True)]
    with subject.clock.phase("benchmark"), theirs():
        timed = [_time(subject, worker, *each) for each in todo[:scored]]
    worker.freeze()
    # Before the worker is ended: for some time after that the driver is busy taking its memory back. And before the latency
    # class: what a submission does there cannot have the scored shapes timed again.
    anchors = (before_gb_s, _settled(anchor, subject.plan.drift))
    with subject.clock.phase("benchmark"), theirs():
        timed += [_time(subject, worker, *each) for each in todo[scored:]]
    with subject.clock.phase("evidence"), theirs():
        evidence = tuple(kernels.launched(subject, worker, shape) for shape in shapes[:scored]) if look else ()
    return Block(tuple(timed), evidence, anchors)


def _settled(anchor: Callable[[], float], drift: float) -> float:
    """The anchor's rate once it has stopped moving: after a worker's end the driver is busy taking its memory back."""
    last = anchor()
    for _ in range(SETTLING):
        now = anchor()
        if abs(now / last - 1) <= drift / SETTLED:
            return now
        last = now
    return last


@contextmanager
def theirs() -> Iterator[None]:
    """The device's memory is shared with the submission, which must leave the judge what it needs."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise Rejection(
            "crashed",
            "The device's memory ran out with the solution loaded: inputs take up to half of it, and checking needs some more",
        ) from None


def _load(subject: timing.Subject, worker: Worker) -> None:
    """Have the worker import the solution."""
    with subject.clock.phase("build"):
        worker.load(subject.plan.build_limit_s)


def _check(subject: timing.Subject, worker: Worker, shapes: tuple[Shape, ...], report: Report) -> None:
    """Timed and hidden shapes, on the public distribution and on every hidden class of inputs."""
    for shape in shapes:
        report(f"checking {words(shape)}")
        timing.first_call(subject, worker, shape)
        for kind in ("public", *subject.code.input_classes):
            timing.check(subject, worker, shape, kind)


def _ways(subject: timing.Subject, worker: Worker, scored: tuple[Shape, ...], latency: tuple[Shape, ...]) -> list[Way]:
    """How each shape is timed: one mode for the whole score, and one for the latency class, whose calls may not be capturable.

    Trying to capture spoils the worker where it fails, so this is the last thing it does.
    """

    def ways(launch_mode: LaunchMode, shapes: tuple[Shape, ...], most: int) -> list[Way]:
        return [Way(launch_mode, timing.calls_per_window(subject, worker, shape, launch_mode, most)) for shape in shapes]

    plain = timing.plain_mode(subject)
    classes = ((scored, subject.plan.max_calls), (latency, subject.plan.latency_calls))
    found = [ways(plain, *each) for each in classes]
    if plain != "call":
        try:
            for number, each in enumerate(classes):
                found[number] = ways("graph", *each)
        except Uncapturable:
            pass
        except Rejection as no:
            # Right call by call and wrong in a graph: work on the legacy stream, say, is left out of a capture without a word.
            if no.verdict != "incorrect":
                raise
    return [way for some in found for way in some]


def _time(
    subject: timing.Subject, worker: Worker, shape: Shape, launch_mode: LaunchMode, calls: int, quiet: timing.Quiet
) -> timing.Timed:
    try:
        return timing.time_shape(subject, worker, shape, launch_mode, calls, quiet)
    except Uncapturable as no:
        # Never switched silently within a score.
        text = f"The calls could be captured in a CUDA graph in one process and not in the next{no}"
        raise Rejection("crashed", text, shape=shape, input_class="public") from None


def words(shape: Shape) -> str:
    """A shape on one line."""
    return ", ".join(f"{name}={size}" for name, size in shape.items())
