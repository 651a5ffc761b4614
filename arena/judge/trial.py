"""All that is done with one submission: checked in a first worker, timed in fresh ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from arena.judge import measure
from arena.judge.link import Uncapturable, Worker
from arena.judge.refusal import Refusal
from arena.judge.window import Mode
from arena.schema import Profile, Timings

Report = Callable[[str], None]
"""Told what the judge is doing, for a person to read."""
Start = Callable[[], AbstractContextManager[Worker]]
"""Starts a fresh worker with the submission."""
Shape = Mapping[str, int]


@dataclass
class Clock:
    """Where the time went, by phase."""

    spent_s: dict[str, float] = field(default_factory=lambda: {"build": 0.0, "check": 0.0, "benchmark": 0.0})
    begin_s: float = field(default_factory=time.monotonic)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside the block."""
        begin_s = time.monotonic()
        try:
            yield
        finally:
            self.spent_s[name] += time.monotonic() - begin_s

    def timings(self) -> Timings:
        """The totals so far."""
        rounded = {f"{name}_s": round(seconds, 3) for name, seconds in self.spent_s.items()}
        return Timings(**rounded, total_s=round(time.monotonic() - self.begin_s, 3))


def run(subject: measure.Subject, profile: Profile, start: Start, clock: Clock, report: Report) -> dict[int, list[measure.Timed]]:
    """Samples of each scored shape (by its number), one entry for each timed process. Refusal when the submission fails."""
    shapes = subject.problem.shapes[profile]
    with start() as worker:
        _load(subject, worker, clock)
        with clock.phase("check"):
            _check(subject, worker, (*shapes, *subject.code.extra_shapes), report)
        with clock.phase("benchmark"):
            mode, calls = _mode(subject, worker, shapes)
    runs: dict[int, list[measure.Timed]] = {number: [] for number in range(len(shapes))}
    for process in range(1, subject.plan.processes + 1):
        with start() as worker:
            with clock.phase("benchmark"):
                costs = [measure.quiet(subject, worker, *each) for each in zip(shapes, [mode] * len(shapes), calls, strict=True)]
            _load(subject, worker, clock)
            for number, shape in enumerate(shapes):
                report(f"timing {words(shape)}, process {process} of {subject.plan.processes}")
                with clock.phase("benchmark"):
                    runs[number].append(_time(subject, worker, shape, mode, calls[number], costs[number]))
    return runs


def _load(subject: measure.Subject, worker: Worker, clock: Clock) -> None:
    """Have the worker import the solution; the time it takes to start the worker itself is not counted."""
    with clock.phase("build"):
        worker.thaw()
        worker.order("load", limit_s=subject.plan.build_limit_s)


def _check(subject: measure.Subject, worker: Worker, shapes: tuple[Shape, ...], report: Report) -> None:
    """Scored and hidden shapes, on the public distribution and on every hidden class of inputs."""
    for shape in shapes:
        report(f"checking {words(shape)}")
        for kind in ("public", *subject.code.modes):
            measure.check(subject, worker, shape, kind)


def _mode(subject: measure.Subject, worker: Worker, shapes: tuple[Shape, ...]) -> tuple[Mode, list[int]]:
    """One mode for the whole score, and the calls in a window of each shape.

    Trying to capture spoils the worker where it fails, so this is the last thing it does.
    """

    def calls(mode: Mode) -> list[int]:
        return [measure.calls_per_window(subject, worker, shape, mode) for shape in shapes]

    plain = measure.plain_mode(subject)
    found = calls(plain)
    if plain == "wall":
        return plain, found
    try:
        return "graph", calls("graph")
    except Uncapturable:
        return plain, found
    except Refusal as no:
        # Right call by call and wrong in a graph: work on the legacy stream, say, is left out of a capture without a word.
        if no.verdict != "incorrect":
            raise
        return plain, found


def _time(subject: measure.Subject, worker: Worker, shape: Shape, mode: Mode, calls: int, quiet: measure.Quiet) -> measure.Timed:
    try:
        return measure.time_shape(subject, worker, shape, mode, calls, quiet)
    except Uncapturable as no:
        # Never switched silently within a score.
        text = f"The calls could be captured in a CUDA graph in one process and not in the next{no}"
        raise Refusal("crashed", text, shape=shape, mode="public") from None


def words(shape: Shape) -> str:
    """A shape on one line."""
    return ", ".join(f"{name}={size}" for name, size in shape.items())
