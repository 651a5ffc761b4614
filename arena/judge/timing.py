"""Check and time one shape in one worker."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal, NamedTuple

import torch

from arena.errors import JudgeError
from arena.judge.device.memory import Layout, Memory, layout
from arena.judge.problem_code import ProblemCode, Shape
from arena.judge.rejection import Rejection
from arena.judge.sampling import Sampling
from arena.judge.score_math import half_width
from arena.judge.verify import verify, worse
from arena.judge.window import PREPARE_TRIES, Disturbed, InputSpec, Seeds, Sets, WindowResult, window
from arena.judge.worker_client import Worker
from arena.schema import Errors, LaunchMode, Problem, Timings

PUBLISH_READINGS = 4
"""Copies timed to learn how long publishing takes on an idle device, after a first one that is slow."""
SHORTEST_CALL_S = 1e-9
"""No launch takes less. A number too small to divide by must not reach the statistics."""
TIMING_TRIES = 4
"""How often one worker may time a shape from its first window when something ran beside it. A driver's hiccup is rarer than one
window in a thousand; a submission that looks every time never finishes. More tries would let one that disturbs itself pick its
luckiest."""
RETRY_PAUSE_S = 0.5
"""The pause before a retry, with the worker frozen; each is longer by this. So a short disturbance does not spoil four tries."""
CHECKED_CALLS = 3
"""Calls of a correctness window: different input sets, and the first one again."""
Phase = Literal["build", "check", "benchmark", "evidence"]


class Stopwatch:
    """Seconds by phase. `build` is time for compilers and tuners, whenever they run."""

    def __init__(self) -> None:
        self._spent_s: dict[Phase, float] = {"build": 0.0, "check": 0.0, "benchmark": 0.0, "evidence": 0.0}
        self._begin_s = self._since_s = time.monotonic()
        self._now: Phase | None = None

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Count the time inside the block for `name` alone: the phase around it pauses."""
        outer = self._change(name)
        try:
            yield
        finally:
            self._change(outer)

    def timings(self) -> Timings:
        """The totals so far."""
        rounded = {f"{name}_s": round(seconds, 3) for name, seconds in self._spent_s.items()}
        return Timings(**rounded, total_s=round(time.monotonic() - self._begin_s, 3))

    def _change(self, name: Phase | None) -> Phase | None:
        now_s = time.monotonic()
        if self._now is not None:
            self._spent_s[self._now] += now_s - self._since_s
        outer, self._now, self._since_s = self._now, name, now_s
        return outer


@dataclass(frozen=True)
class ScoringContext:
    """What one scoring needs everywhere: the problem, its code, the device's memory, the effort, the seeds and the stopwatch."""

    problem: Problem
    code: ProblemCode
    memory: Memory
    sampling: Sampling
    seeds: Seeds
    stopwatch: Stopwatch
    _layouts: dict[tuple[object, ...], Layout] = field(default_factory=dict)

    def input_layout(self, shape: Shape, input_class: str) -> Layout:
        """Where the tensors of an input set lie. Sizes depend on the shape and the input class alone."""
        key = (input_class, *shape.items())
        if key not in self._layouts:
            tensors = self.code.make_inputs(shape, 0, input_class, self.memory.device)
            self._layouts[key] = layout([(tuple(tensor.shape), tensor.dtype) for tensor in tensors])
        return self._layouts[key]


class Overhead(NamedTuple):
    """The judge's own cost of a window on one shape, in one worker process."""

    empty_window_s: float
    """A window without calls."""
    publish_alone_s: float
    """Publishing the inputs while no other process uses the device."""


@dataclass(frozen=True)
class ShapeTiming:
    """One shape's samples from one worker process, in seconds per call."""

    launch_mode: LaunchMode
    samples_s: tuple[float, ...]
    """By the clock that counts: the device's in launch modes graph and stream, the judge's in launch mode call."""
    wall_s: tuple[float, ...]
    """The same windows by the judge's clock, less the empty window."""
    calls: int
    error: Errors
    disturbed: tuple[str, ...] = ()
    """Why this process retried the shape: one reason for each retry."""


def first_call(context: ScoringContext, worker: Worker, shape: Shape) -> None:
    """One call on a shape that is new to the worker, which may compile and tune. Its output is not verified."""
    launch_mode, limit_s = plain_mode(context), context.sampling.first_call_limit_s
    inputs = [InputSpec("public", seed) for seed in context.seeds.take(1)]
    located = _locate_rejection(shape, "public")
    with context.stopwatch.phase("build"), located, buffers(context, worker, shape, "public", 1) as sets:
        window(worker, sets, context.code, shape, lambda: inputs, launch_mode=launch_mode, sample=0, limit_s=limit_s)


def check(context: ScoringContext, worker: Worker, shape: Shape, input_class: str) -> Errors:
    """Verify every call of a window on one shape and one input class; the first set comes again at the end."""

    def draw() -> list[InputSpec]:
        inputs = [InputSpec(input_class, seed) for seed in context.seeds.take(CHECKED_CALLS - 1)]
        return [*inputs, inputs[0]]

    launch_mode, limit_s = plain_mode(context), context.sampling.first_call_limit_s
    with _locate_rejection(shape, input_class), buffers(context, worker, shape, input_class, CHECKED_CALLS) as sets:
        done = window(worker, sets, context.code, shape, draw, launch_mode=launch_mode, sample=CHECKED_CALLS, limit_s=limit_s)
        return verify(done, sets, context.code, context.problem, shape)


def plain_mode(context: ScoringContext) -> LaunchMode:
    """The launch mode where no graph has been captured."""
    return "call" if context.memory.kind == "host" else "stream"


def calls_per_window(context: ScoringContext, worker: Worker, shape: Shape, launch_mode: LaunchMode, max_calls: int) -> int:
    """As many calls as fill a window, measured in a trial after the first calls. Uncapturable spoils the worker."""
    sampling = context.sampling
    with _locate_rejection(shape, "public"), buffers(context, worker, shape, "public", sampling.min_calls) as sets:
        _warm_up(context, worker, sets, shape, launch_mode)
        done = _public_window(context, worker, sets, shape, sampling.min_calls, launch_mode, sampling.call_limit_s)
        verify(done, sets, context.code, context.problem, shape)
        call_s = (done.elapsed_s if launch_mode == "call" else done.device_s) / sampling.min_calls
        set_bytes = sets.input_layout.set_bytes + sets.output_layout.set_bytes
    room_bytes = context.memory.room_bytes() or sampling.sets_bytes
    fill = min(round(sampling.window_s / max(call_s, 1e-7)), max_calls)
    cold, most = -(-sampling.cold_bytes // set_bytes), max(room_bytes // set_bytes, sampling.min_calls)
    if cold > most:
        needed = f"{sampling.cold_bytes / 1e6:.0f} MB of input sets are needed to exceed this device's cache"
        raise JudgeError(f"{needed}, and there is room for {room_bytes / 1e6:.0f} MB: free some of its memory")
    return min(max(fill, cold, sampling.min_calls), most)


def measure_overhead(context: ScoringContext, worker: Worker, shape: Shape, launch_mode: LaunchMode, calls: int) -> Overhead:
    """Time the judge's own part of a window, in a worker that has not loaded the submission: the submission could distort it."""
    memory, sampling, limit_s = context.memory, context.sampling, context.sampling.first_call_limit_s
    with buffers(context, worker, shape, "public", calls) as sets:
        # The first copy and the first window are slow: they wake the device.
        copies = [memory.publish(sets.staged, sets.inputs, meanwhile=memory.settle)[0] for _ in range(1 + PUBLISH_READINGS)]
        runs = range(1 + sampling.empty_windows)
        empty = [_public_window(context, worker, sets, shape, 0, launch_mode, limit_s) for _ in runs]
    return Overhead(median(window.elapsed_s for window in empty[1:]), min(copies[1:]))


def time_shape(
    context: ScoringContext, worker: Worker, shape: Shape, launch_mode: LaunchMode, calls: int, overhead: Overhead
) -> ShapeTiming:
    """Time one shape until the interval of its median is narrow enough.

    At secret places among the timed windows come audit windows: the same calls in the same buffers, with hidden input classes
    mixed in. So the code that is timed is the code that passes them, however it tells a check from a timing.
    """
    disturbed: list[str] = []
    while True:
        try:
            return replace(_time_once(context, worker, shape, launch_mode, calls, overhead), disturbed=tuple(disturbed))
        except Disturbed as rejection:
            disturbed.append(rejection.message)
            if len(disturbed) == TIMING_TRIES:
                text = f"Timing was disturbed in each of {TIMING_TRIES} tries: {'; '.join(disturbed)}"
                raise Disturbed("cheated", text, shape=rejection.shape, input_class=rejection.input_class) from None
            time.sleep(RETRY_PAUSE_S * len(disturbed))


def _time_once(
    context: ScoringContext, worker: Worker, shape: Shape, launch_mode: LaunchMode, calls: int, overhead: Overhead
) -> ShapeTiming:
    """One try. Disturbed when something ran that could have learned which window is an audit: a retry draws new places."""
    sampling = context.sampling
    elapsed: list[tuple[float, float]] = []
    worst: Errors = dict.fromkeys(context.problem.tolerance, 0.0)
    audits = sorted(secrets.randbelow(sampling.min_windows) for _ in range(sampling.audit_windows))
    first_call(context, worker, shape)
    with _locate_rejection(shape, "public"), buffers(context, worker, shape, "public", calls, overhead.publish_alone_s) as sets:
        _warm_up(context, worker, sets, shape, launch_mode)
        while not _enough_windows([window_s[launch_mode != "call"] / calls for window_s in elapsed], sampling):
            while audits and audits[0] == len(elapsed):
                audits.pop(0)
                _audit_window(context, worker, sets, shape, launch_mode)
            done = _public_window(context, worker, sets, shape, calls, launch_mode, sampling.call_limit_s, tries=1)
            if launch_mode != "call" and not done.device_s / calls > SHORTEST_CALL_S:
                raise Rejection("cheated", f"The worker reported an impossible {done.device_s:.3g} s for {calls} calls")
            worst = worse(worst, verify(done, sets, context.code, context.problem, shape))
            elapsed.append((done.elapsed_s, done.device_s))
    # Never below zero: a window shorter than an empty one shows a disturbed machine, not a fast kernel.
    wall_s = tuple(max(window_s - overhead.empty_window_s, window_s / 2) / calls for window_s, _ in elapsed)
    device = tuple(device_s / calls for _, device_s in elapsed)
    return ShapeTiming(launch_mode, wall_s if launch_mode == "call" else device, wall_s, calls, worst)


def _audit_window(context: ScoringContext, worker: Worker, sets: Sets, shape: Shape, launch_mode: LaunchMode) -> None:
    """A window like the timed ones with half of its sets of hidden input classes. Several are verified; its time is dropped."""
    # Classes whose tensors have the sizes of the public ones, so that they fit in the same buffers.
    fitting = (name for name in context.code.input_classes if context.input_layout(shape, name) == sets.input_layout)
    input_classes = ["public", *fitting]
    dice = secrets.SystemRandom()

    def draw() -> list[InputSpec]:
        return [InputSpec(dice.choice((dice.choice(input_classes), "public")), seed) for seed in context.seeds.take(sets.count)]

    sample, limit_s = min(context.sampling.audit_sample, sets.count), context.sampling.call_limit_s
    done = window(worker, sets, context.code, shape, draw, launch_mode=launch_mode, sample=sample, limit_s=limit_s, tries=1)
    verify(done, sets, context.code, context.problem, shape)


def _warm_up(context: ScoringContext, worker: Worker, sets: Sets, shape: Shape, launch_mode: LaunchMode) -> None:
    """Make the untimed first calls in these buffers, and capture the graph. Their inputs are not used again."""
    limit_s = context.sampling.first_call_limit_s
    done = _public_window(context, worker, sets, shape, sets.count, plain_mode(context), limit_s)
    verify(done, sets, context.code, context.problem, shape)
    if launch_mode == "graph":
        worker.resume()
        worker.order("capture", limit_s=limit_s)


def _public_window(
    context: ScoringContext,
    worker: Worker,
    sets: Sets,
    shape: Shape,
    calls: int,
    launch_mode: LaunchMode,
    limit_s: float,
    tries: int = PREPARE_TRIES,
) -> WindowResult:
    """A window of `calls` calls on public inputs. A window without calls has a sample too: taking it is part of the overhead."""

    def draw() -> list[InputSpec]:
        return [InputSpec("public", seed) for seed in context.seeds.take(calls)]

    sample = context.sampling.sample
    return window(worker, sets, context.code, shape, draw, launch_mode=launch_mode, sample=sample, limit_s=limit_s, tries=tries)


def _enough_windows(samples: list[float], sampling: Sampling) -> bool:
    enough = len(samples) >= sampling.min_windows
    return enough and (len(samples) >= sampling.max_windows or half_width(samples) < sampling.half_width)


@contextmanager
def _locate_rejection(shape: Shape, input_class: str) -> Iterator[None]:
    """Write the inputs into a rejection that names none."""
    try:
        yield
    except Rejection as rejection:
        rejection.shape, rejection.input_class = rejection.shape or shape, rejection.input_class or input_class
        raise


@contextmanager
def buffers(
    context: ScoringContext, worker: Worker, shape: Shape, input_class: str, count: int, publish_alone_s: float = math.inf
) -> Iterator[Sets]:
    """Shared buffers for `count` sets, mapped by the worker. `publish_alone_s` bounds publishing where windows are timed."""
    input_layout = context.input_layout(shape, input_class)
    memory, given = context.memory, context.problem.outputs_given
    # An output's names of sizes are the shape's: the catalogue has checked that.
    sizes = [tuple(size if isinstance(size, int) else shape[size] for size in each.shape) for each in context.problem.outputs]
    dtypes = [getattr(torch, each.dtype) for each in context.problem.outputs]
    output_layout = layout(list(zip(sizes, dtypes, strict=True)))
    with ExitStack() as stack:
        inputs = memory.buffer(input_layout.set_bytes * count)
        stack.callback(inputs.close)
        outputs = memory.buffer(output_layout.set_bytes * count)
        stack.callback(outputs.close)
        staged = memory.staging(inputs)
        sets = Sets(memory, staged, inputs, outputs, input_layout, output_layout, count, given, publish_alone_s)
        worker.resume()
        worker.order("shape", fds=[inputs.fd, outputs.fd], limit_s=context.sampling.call_limit_s, **sets.message())
        yield sets
