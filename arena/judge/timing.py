"""Check and time one shape in one worker."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import NamedTuple

import torch

from arena.errors import JudgeError
from arena.judge.device.layout import Layout, layout
from arena.judge.device.memory import Memory
from arena.judge.problem_code import Code
from arena.judge.rejection import Rejection
from arena.judge.sampling import Sampling
from arena.judge.stats import half_width
from arena.judge.stopwatch import Clock
from arena.judge.verify import verify, worse
from arena.judge.window import PUBLISH_TRIES, Committed, Disturbed, Draw, Seeds, Sets, window
from arena.judge.worker_client import Worker
from arena.schema import Errors, LaunchMode, Problem, Tensor

PUBLISHED_ALONE = 4
"""Copies timed to know how long publishing takes undisturbed; the first is slow."""
SHORTEST_CALL_S = 1e-9
"""Nothing that is launched takes less; a number too small to be divided must not reach the statistics."""
UNDISTURBED_TRIES = 4
"""So often in one worker a shape is timed from its beginning when something ran beside it. A driver's hiccup is rarer than one
window in a thousand; who looks every time never gets to an end. Not more: whoever disturbs himself picks his luckiest try."""
CALM_S = 0.5
"""After each failed try this much longer is waited, with the worker stopped: what disturbs for a moment is not met four times."""
CHECKED_CALLS = 3
"""Calls of a correctness window: different input sets, and the first once more."""


@dataclass(frozen=True)
class Subject:
    """What is being scored, on what, and with how much effort."""

    problem: Problem
    code: Code
    memory: Memory
    plan: Sampling
    seeds: Seeds
    clock: Clock
    _layouts: dict[tuple[object, ...], Layout] = field(default_factory=dict)

    def input_layout(self, shape: Mapping[str, int], kind: str) -> Layout:
        """Where the tensors of an input set lie: sizes depend on the shape and the class of inputs alone."""
        key = (kind, *shape.items())
        if key not in self._layouts:
            tensors = self.code.make_inputs(shape, 0, kind, self.memory.device)
            self._layouts[key] = layout([(tuple(tensor.shape), tensor.dtype) for tensor in tensors])
        return self._layouts[key]


class Quiet(NamedTuple):
    """The judge's own cost of a window on one shape, in one worker process."""

    empty_s: float
    """A window without calls."""
    alone_s: float
    """Publishing the inputs while nobody else uses the device."""


@dataclass(frozen=True)
class Timed:
    """One shape's samples from one worker process, in seconds per call."""

    launch_mode: LaunchMode
    samples_s: tuple[float, ...]
    """By the clock that counts: the device's in launch modes graph and stream, the judge's in launch mode call."""
    wall_s: tuple[float, ...]
    """The same windows by the judge's clock, the empty window taken out."""
    calls: int
    error: Errors
    disturbed: tuple[str, ...] = ()
    """Why the shape was begun again in this process, once for each time."""


def first_call(subject: Subject, worker: Worker, shape: Mapping[str, int]) -> None:
    """One call on a shape that the worker has not seen, which may compile and tune. Nobody looks at what it gives."""
    with subject.clock.phase("build"), _about(shape, "public"), buffers(subject, worker, shape, "public", 1) as sets:
        draw = [Draw("public", seed) for seed in subject.seeds.take(1)]
        limit_s = subject.plan.first_call_limit_s
        window(worker, sets, subject.code, shape, lambda: draw, launch_mode=plain_mode(subject), sample=0, limit_s=limit_s)


def check(subject: Subject, worker: Worker, shape: Mapping[str, int], kind: str) -> Errors:
    """Verify every call of a window on one shape and one class of inputs; the first set comes once more at the end."""

    def draw() -> list[Draw]:
        drawn = [Draw(kind, seed) for seed in subject.seeds.take(CHECKED_CALLS - 1)]
        return [*drawn, drawn[0]]

    launch_mode, limit_s = plain_mode(subject), subject.plan.first_call_limit_s
    with _about(shape, kind), buffers(subject, worker, shape, kind, CHECKED_CALLS) as sets:
        done = window(worker, sets, subject.code, shape, draw, launch_mode=launch_mode, sample=CHECKED_CALLS, limit_s=limit_s)
        return verify(done, sets, subject.code, subject.problem, shape)


def plain_mode(subject: Subject) -> LaunchMode:
    """How calls are made where no graph has been captured."""
    return "call" if subject.memory.kind == "host" else "stream"


def calls_per_window(subject: Subject, worker: Worker, shape: Mapping[str, int], launch_mode: LaunchMode, max_calls: int) -> int:
    """As many calls as fill a window, from a trial after the first calls are over. Uncapturable spoils the worker."""
    plan = subject.plan
    with _about(shape, "public"), buffers(subject, worker, shape, "public", plan.min_calls) as sets:
        _warm(subject, worker, sets, shape, launch_mode)
        done = _run(subject, worker, sets, shape, plan.min_calls, launch_mode, plan.call_limit_s)
        verify(done, sets, subject.code, subject.problem, shape)
        call_s = (done.elapsed_s if launch_mode == "call" else done.device_s) / plan.min_calls
        set_bytes = sets.input_layout.set_bytes + sets.output_layout.set_bytes
    room_bytes = subject.memory.room_bytes() or plan.sets_bytes
    fill = min(round(plan.window_s / max(call_s, 1e-7)), max_calls)
    cold, most = -(-plan.cold_bytes // set_bytes), max(room_bytes // set_bytes, plan.min_calls)
    if cold > most:
        needed = f"{plan.cold_bytes / 1e6:.0f} MB of input sets are needed to be larger than this device's cache"
        raise JudgeError(f"{needed}, and there is room for {room_bytes / 1e6:.0f}: free some of its memory")
    return min(max(fill, cold, plan.min_calls), most)


def quiet(subject: Subject, worker: Worker, shape: Mapping[str, int], launch_mode: LaunchMode, calls: int) -> Quiet:
    """What the judge's own part of a window takes, in a worker that has not loaded the submission yet, which could lie."""
    memory, plan = subject.memory, subject.plan
    with buffers(subject, worker, shape, "public", calls) as sets:
        # The first of each is slow: it starts the device.
        copies = [memory.publish(sets.staged, sets.inputs, meanwhile=memory.settle)[0] for _ in range(1 + PUBLISHED_ALONE)]
        empty = [
            _run(subject, worker, sets, shape, 0, launch_mode, plan.first_call_limit_s) for _ in range(1 + plan.empty_windows)
        ]
    return Quiet(median(window.elapsed_s for window in empty[1:]), min(copies[1:]))


def time_shape(
    subject: Subject, worker: Worker, shape: Mapping[str, int], launch_mode: LaunchMode, calls: int, quiet: Quiet
) -> Timed:
    """Time one shape until its median is known well enough.

    At secret places among the timed windows come audits: the same calls in the same buffers, but on hidden classes of inputs
    too. So the code that is timed is the code that survives them, however it tells a check from a timing.
    """
    disturbed: list[str] = []
    while True:
        try:
            return replace(_timed(subject, worker, shape, launch_mode, calls, quiet), disturbed=tuple(disturbed))
        except Disturbed as by:
            disturbed.append(by.message)
            if len(disturbed) == UNDISTURBED_TRIES:
                text = f"Timing was disturbed in each of {UNDISTURBED_TRIES} tries: {'; '.join(disturbed)}"
                raise Disturbed("cheated", text, shape=by.shape, input_class=by.input_class) from None
            time.sleep(CALM_S * len(disturbed))


def _timed(
    subject: Subject, worker: Worker, shape: Mapping[str, int], launch_mode: LaunchMode, calls: int, quiet: Quiet
) -> Timed:
    """One try. Disturbed when something ran that could have learned which window is an audit: the next one draws their places."""
    plan = subject.plan
    elapsed: list[tuple[float, float]] = []
    worst: Errors = dict.fromkeys(subject.problem.tolerance, 0.0)
    audits = sorted(secrets.randbelow(plan.min_windows) for _ in range(plan.audits))
    first_call(subject, worker, shape)
    with _about(shape, "public"), buffers(subject, worker, shape, "public", calls, quiet.alone_s) as sets:
        _warm(subject, worker, sets, shape, launch_mode)
        while not _enough([window_s[launch_mode != "call"] / calls for window_s in elapsed], plan):
            while audits and audits[0] == len(elapsed):
                audits.pop(0)
                _audit(subject, worker, sets, shape, launch_mode)
            done = _run(subject, worker, sets, shape, calls, launch_mode, plan.call_limit_s, tries=1)
            if launch_mode != "call" and not done.device_s / calls > SHORTEST_CALL_S:
                raise Rejection("cheated", f"The worker says that {calls} calls took {done.device_s:.3g} s")
            worst = worse(worst, verify(done, sets, subject.code, subject.problem, shape))
            elapsed.append((done.elapsed_s, done.device_s))
    # Never below nothing: a window shorter than an empty one says that the machine was disturbed, not that it was fast.
    wall_s = tuple(max(window_s - quiet.empty_s, window_s / 2) / calls for window_s, _ in elapsed)
    device = tuple(device_s / calls for _, device_s in elapsed)
    return Timed(launch_mode, wall_s if launch_mode == "call" else device, wall_s, calls, worst)


def _audit(subject: Subject, worker: Worker, sets: Sets, shape: Mapping[str, int], launch_mode: LaunchMode) -> None:
    """A window like the timed ones in which half of the sets are of hidden classes; several are verified, no time is kept."""
    kinds = _kinds_that_fit(subject, sets, shape)
    dice = secrets.SystemRandom()

    def draw() -> list[Draw]:
        return [Draw(dice.choice((dice.choice(kinds), "public")), seed) for seed in subject.seeds.take(sets.count)]

    plan = subject.plan
    sample = min(plan.audit_sample, sets.count)
    done = window(
        worker, sets, subject.code, shape, draw, launch_mode=launch_mode, sample=sample, limit_s=plan.call_limit_s, tries=1
    )
    verify(done, sets, subject.code, subject.problem, shape)


def _kinds_that_fit(subject: Subject, sets: Sets, shape: Mapping[str, int]) -> list[str]:
    """Classes of inputs whose tensors are as large as the public ones, so that they can stand in the same buffers."""
    return ["public", *(kind for kind in subject.code.input_classes if subject.input_layout(shape, kind) == sets.input_layout)]


def _warm(subject: Subject, worker: Worker, sets: Sets, shape: Mapping[str, int], launch_mode: LaunchMode) -> None:
    """The untimed first calls in these buffers, and the capture. Their inputs are not used again."""
    limit_s = subject.plan.first_call_limit_s
    done = _run(subject, worker, sets, shape, sets.count, plain_mode(subject), limit_s)
    verify(done, sets, subject.code, subject.problem, shape)
    if launch_mode == "graph":
        worker.resume()
        worker.order("capture", limit_s=limit_s)


def _run(
    subject: Subject,
    worker: Worker,
    sets: Sets,
    shape: Mapping[str, int],
    calls: int,
    launch_mode: LaunchMode,
    limit_s: float,
    tries: int = PUBLISH_TRIES,
) -> Committed:
    """A window of `calls` calls on the public distribution. One without calls has a sample too: taking it is part of the cost."""

    def draw() -> list[Draw]:
        return [Draw("public", seed) for seed in subject.seeds.take(calls)]

    sample = subject.plan.sample
    return window(worker, sets, subject.code, shape, draw, launch_mode=launch_mode, sample=sample, limit_s=limit_s, tries=tries)


def _enough(samples: list[float], plan: Sampling) -> bool:
    if len(samples) < plan.min_windows:
        return False
    return len(samples) >= plan.max_windows or half_width(samples) < plan.half_width


@contextmanager
def _about(shape: Mapping[str, int], kind: str) -> Iterator[None]:
    """A refusal from inside says on which inputs it happened."""
    try:
        yield
    except Rejection as no:
        no.shape, no.input_class = no.shape or shape, no.input_class or kind
        raise


@contextmanager
def buffers(
    subject: Subject, worker: Worker, shape: Mapping[str, int], kind: str, count: int, alone_s: float = math.inf
) -> Iterator[Sets]:
    """Shared buffers for `count` sets, made known to the worker. `alone_s` is asked of publishing where time is taken."""
    input_layout = subject.input_layout(shape, kind)
    output_layout = layout([(_sizes(tensor, shape), getattr(torch, tensor.dtype)) for tensor in subject.problem.outputs])
    with ExitStack() as stack:
        inputs = subject.memory.buffer(input_layout.set_bytes * count)
        stack.callback(inputs.close)
        outputs = subject.memory.buffer(output_layout.set_bytes * count)
        stack.callback(outputs.close)
        memory = subject.memory
        given = subject.problem.outputs_given
        sets = Sets(memory, memory.staging(inputs), inputs, outputs, input_layout, output_layout, count, given, alone_s)
        worker.resume()
        worker.order("shape", fds=[inputs.fd, outputs.fd], limit_s=subject.plan.call_limit_s, **sets.message())
        yield sets


def _sizes(tensor: Tensor, shape: Mapping[str, int]) -> tuple[int, ...]:
    """An output's sizes; its names are the shape's, as the catalogue has checked."""
    return tuple(size if isinstance(size, int) else shape[size] for size in tensor.shape)
