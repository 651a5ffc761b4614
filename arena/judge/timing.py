"""Check and time one shape in one worker."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Literal

import torch

from arena.errors import JudgeError
from arena.judge import gpu_window
from arena.judge.device.memory import Layout, Memory, layout
from arena.judge.problem_code import ProblemCode, Shape
from arena.judge.rejection import Rejection
from arena.judge.sampling import Sampling
from arena.judge.score_math import Ceiling, ceiling, half_width
from arena.judge.sets import Disturbed, InputSpec, Seeds, Sets, WindowResult, make, poison, write
from arena.judge.verify import verify, worse, written
from arena.judge.window import PREPARE_TRIES, retried, window
from arena.judge.worker_client import Worker
from arena.schema import Device, Errors, LaunchMode, Problem, Timings

SHORTEST_CALL_S = 1e-7
"""No call takes less. A window shorter than its overhead was disturbed, and must not reach the statistics as zero."""
TIMING_TRIES = 4
"""How often one worker may time a shape from its first window when something ran beside it. A driver's hiccup is rarer than one
window in a thousand; a submission that looks every time never finishes. More tries would let one that disturbs itself pick its
luckiest."""
RETRY_PAUSE_S = 0.5
"""The pause before a retry, with the worker frozen; each is longer by this. So a short disturbance does not spoil four tries."""
ALONE_CALLS = 16
"""Calls one at a time that the GPU's queue holds at once."""
ALONE_MODES: tuple[LaunchMode, ...] = ("graph", "stream")
LATE, LATE_S = 0.2, 1e-3
"""How much longer than alone publishing may take, relative and absolute, before a window does not count. Contexts that take turns
do not need this bound: what it takes longer counts in any case. Honest windows were 0.05 ms late at most."""
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
    """What one scoring needs everywhere: the problem, its code, the device and its memory, the effort, seeds and stopwatch."""

    problem: Problem
    code: ProblemCode
    device: Device
    memory: Memory
    sampling: Sampling
    seeds: Seeds
    stopwatch: Stopwatch
    _layouts: dict[tuple[object, ...], Layout] = field(default_factory=dict)

    def ceiling(self, shape: Shape) -> Ceiling:
        """The least time that a call takes on the device."""
        return ceiling(self.problem.flops(shape), self.problem.bytes(shape), self.device, self.code.rate)

    def room(self, shape: Shape) -> int:
        """How many sets of the public inputs there is memory for; JudgeError where the device holds too few."""
        inputs_bytes, outputs_bytes = self.input_layout(shape, "public").set_bytes, self.output_layout(shape).set_bytes
        room_bytes = self.memory.room_bytes()
        if room_bytes is None:
            return max(self.sampling.sets_bytes // (inputs_bytes + outputs_bytes), self.sampling.min_calls)
        count = room_bytes // (2 * inputs_bytes + outputs_bytes)  # the judge makes inputs in a place of its own
        if count < CHECKED_CALLS:
            need = f"{CHECKED_CALLS} sets take {CHECKED_CALLS * (2 * inputs_bytes + outputs_bytes) / 1e9:.1f} GB"
            raise JudgeError(
                f"{self.problem.name} at {shape_text(shape)} does not fit on this device: {need}, and {room_bytes / 1e9:.1f} GB, "
                "half of its free memory, are for them; free its memory or choose a larger device"
            )
        return count

    def output_layout(self, shape: Shape) -> Layout:
        """Where the tensors of an output set lie."""
        # An output's names of sizes are the shape's: the catalogue has checked that.
        sizes = [tuple(size if isinstance(size, int) else shape[size] for size in each.shape) for each in self.problem.outputs]
        dtypes = [getattr(torch, each.dtype) for each in self.problem.outputs]
        return layout(list(zip(sizes, dtypes, strict=True)))

    def input_layout(self, shape: Shape, input_class: str) -> Layout:
        """Where the tensors of an input set lie. Sizes depend on the shape and the input class alone."""
        key = (input_class, *shape.items())
        if key not in self._layouts:
            tensors = self.code.make_inputs(shape, 0, input_class, self.memory.device)
            self._layouts[key] = layout([(tuple(tensor.shape), tensor.dtype) for tensor in tensors])
        return self._layouts[key]


@dataclass(frozen=True)
class Overhead:
    """The judge's own part of a window's time on one shape, measured in one worker before it loads the submission."""

    window_s: float
    calls: int = 2
    """In the windows that it was measured with: as many as those of the fastest possible kernel have."""
    publish_s: float = 0.0
    """Publishing the inputs of such a window on an idle GPU."""
    alone_s: Mapping[LaunchMode, float] = field(default_factory=dict)
    """The judge's own part of the time of one call alone, which is less where no graph has to start."""
    alone_publish_s: float = 0.0

    def late_s(self, window: WindowResult, calls: int) -> float:
        """How much longer than on an idle GPU publishing the inputs of that many calls took. Disturbed where it is far longer."""
        alone_s = self.alone_publish_s + (calls - 1) * (self.publish_s - self.alone_publish_s) / (self.calls - 1)
        late_s = max(0.0, window.publish_s - alone_s)
        if late_s > LATE * alone_s + LATE_S:
            text = f"Something ran on the GPU while inputs were published: {late_s * 1e3:.3g} ms more than {alone_s * 1e3:.3g} ms"
            raise Disturbed("cheated", text)
        return late_s


@dataclass(frozen=True)
class ShapeTiming:
    """One shape's windows in one worker process."""

    launch_mode: LaunchMode
    calls: int
    """In one window."""
    windows_s: tuple[float, ...]
    """Of all calls of a window, the judge's own part included."""
    alone_s: tuple[float, ...]
    """Of one call alone on a GPU, the judge's own part included."""
    overhead: Overhead
    error: Errors
    disturbed: tuple[str, ...] = ()
    """Why this process retried the shape: one reason for each retry."""

    def samples_s(self, overhead_s: float) -> tuple[float, ...]:
        """Seconds per call of each window."""
        return tuple(max((window_s - overhead_s) / self.calls, SHORTEST_CALL_S) for window_s in self.windows_s)

    def alone_samples_s(self, overhead_s: float) -> tuple[float, ...]:
        """Seconds of each call alone."""
        return tuple(max(alone_s - overhead_s, SHORTEST_CALL_S) for alone_s in self.alone_s)


def first_call(context: ScoringContext, worker: Worker, shape: Shape) -> None:
    """One call on a shape that is new to the worker, which may compile and tune. Several workers may do so at once."""
    limit_s = context.sampling.first_call_limit_s
    with _locate_rejection(shape, "public"):
        sets = place(context, worker, shape, "public", 1)
        (seed,) = context.seeds.take(1)
        write(context.code.make_inputs(shape, seed, "public", context.memory.device), sets.input(0))
        context.memory.settle()
        worker.order("run", calls=1, launch_mode="call", limit_s=limit_s)
        worker.order("wait", limit_s=limit_s)


def build(context: ScoringContext, worker: Worker, shapes: Iterable[Shape]) -> None:
    """Load the submission, call it once on each of the shapes, and stop it."""
    worker.load(context.sampling.build_limit_s)
    for shape in shapes:
        first_call(context, worker, shape)
    worker.freeze()


def check(context: ScoringContext, worker: Worker, shape: Shape, input_class: str) -> Errors:
    """Verify every call of a window on one shape and one input class; the first set comes again at the end."""

    def draw() -> list[InputSpec]:
        inputs = [InputSpec(input_class, seed) for seed in context.seeds.take(CHECKED_CALLS - 1)]
        return [*inputs, inputs[0]]

    launch_mode, limit_s = plain_mode(context), context.sampling.first_call_limit_s
    with _locate_rejection(shape, input_class):
        sets = place(context, worker, shape, input_class, CHECKED_CALLS)
        done = window(worker, sets, context.code, shape, draw, launch_mode, CHECKED_CALLS, limit_s)
        return verify(done, sets, context.code, context.problem, shape)


def plain_mode(context: ScoringContext) -> LaunchMode:
    """The launch mode where no graph has been captured."""
    return "call" if context.memory.kind == "host" else "stream"


def calls_per_window(context: ScoringContext, worker: Worker, shape: Shape, launch_mode: LaunchMode) -> int:
    """As many calls as fill a window, measured in a trial after the first calls. Uncapturable spoils the worker."""
    sampling, room = context.sampling, context.room(shape)
    trial = min(sampling.min_calls, room)
    with _locate_rejection(shape, "public"):
        sets = place(context, worker, shape, "public", trial)
        _warm_up(context, worker, sets, shape, launch_mode)
        one, done = (
            _public_window(context, worker, sets, shape, calls, launch_mode, sampling.call_limit_s) for calls in (1, trial)
        )
        verify(done, sets, context.code, context.problem, shape)
    return calls_that_fill(context, shape, (done.elapsed_s - one.elapsed_s) / (trial - 1))


def calls_that_fill(context: ScoringContext, shape: Shape, call_s: float) -> int:
    """How many calls of that time a window holds, within the bounds of the sampling and of the memory."""
    sampling, room = context.sampling, context.room(shape)
    fill = min(round(sampling.window_s / max(call_s, SHORTEST_CALL_S)), sampling.max_calls)
    cold = -(-sampling.cold_bytes // (context.input_layout(shape, "public").set_bytes + context.output_layout(shape).set_bytes))
    if cold > room:
        needed = f"{sampling.cold_bytes / 1e6:.0f} MB of input sets are needed to exceed this device's cache"
        raise JudgeError(f"{needed}, and there is room for {room} sets of {shape_text(shape)}: free some of its memory")
    return min(max(fill, cold, sampling.min_calls), room)


def most_calls(context: ScoringContext, shape: Shape) -> int:
    """The calls that fill a window where each takes the least time that it can."""
    return calls_that_fill(context, shape, context.ceiling(shape).seconds)


def measure_overhead(context: ScoringContext, worker: Worker, shape: Shape) -> Overhead:
    """The judge's own part of a window, in a worker that has not loaded the submission, which could distort it.

    On a GPU the window is a chain of the judge's own calls, whose time is known, as many as a timed one may have. Else it has
    no calls.
    """
    sampling, limit_s, calls = context.sampling, context.sampling.first_call_limit_s, most_calls(context, shape)
    sets = place(context, worker, shape, "public", calls)
    runs = range(1 + sampling.empty_windows)  # the first is slow: it wakes the device
    if context.memory.kind == "host":
        poison(sets, calls, seed=secrets.randbits(63))  # touches its pages, as every call does before they are copied
        empty = [_public_window(context, worker, sets, shape, 0, "call", limit_s) for _ in runs]
        return Overhead(median(window.elapsed_s for window in empty[1:]))
    own_s = worker.order("capture", limit_s=limit_s)

    def windows(launch_mode: LaunchMode, count: int, *, alone: bool) -> list[WindowResult]:
        # The judge's own calls read nothing, so the inputs are what the buffers happen to hold.
        unread = [InputSpec("public", 0)] * count
        play = partial(gpu_window.run, worker, sets, unread, lambda: None, launch_mode, sampling.sample, limit_s, alone=alone)
        return retried(play)

    own = [windows("graph", calls, alone=False)[0] for _ in runs][1:]
    batches, count = range(sampling.alone_windows), min(calls, ALONE_CALLS)
    alone = {mode: [each for _ in batches for each in windows(mode, count, alone=True)] for mode in ALONE_MODES}
    return Overhead(
        median(window.elapsed_s for window in own) - own_s,
        calls,
        median(window.publish_s for window in own),
        {mode: median(window.elapsed_s for window in some) - own_s / calls for mode, some in alone.items()},
        median(window.publish_s for some in alone.values() for window in some),
    )


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
    sampling, elapsed, alone = context.sampling, list[float](), list[float]()
    worst: Errors = dict.fromkeys(context.problem.tolerance, 0.0)
    audits = sorted(secrets.randbelow(sampling.min_windows) for _ in range(sampling.audit_windows))
    with _locate_rejection(shape, "public"):
        sets = place(context, worker, shape, "public", calls)
        _warm_up(context, worker, sets, shape, launch_mode)
        while not _enough_windows(elapsed, sampling):
            while audits and audits[0] == len(elapsed):
                audits.pop(0)
                _audit_window(context, worker, sets, shape, launch_mode)
            done = _public_window(context, worker, sets, shape, calls, launch_mode, sampling.call_limit_s, tries=1)
            worst = worse(worst, verify(done, sets, context.code, context.problem, shape))
            written(sets.all_outputs(calls), context.problem, shape)
            elapsed.append(done.elapsed_s + overhead.late_s(done, calls))
        for _ in range(sampling.alone_windows):
            windows = _alone(context, worker, sets, shape, launch_mode)
            for each in windows:
                worst = worse(worst, verify(each, sets, context.code, context.problem, shape))
                if each.unsampled:
                    written(tuple(tensor.reshape(1, -1) for tensor in each.unsampled), context.problem, shape)
            alone += [each.elapsed_s + overhead.late_s(each, 1) for each in windows]
    return ShapeTiming(launch_mode, calls, tuple(elapsed), tuple(alone), overhead, worst)


def _alone(context: ScoringContext, worker: Worker, sets: Sets, shape: Shape, launch_mode: LaunchMode) -> list[WindowResult]:
    """Windows of one call each on a GPU, from a cold cache: what a call takes that has no others beside it."""

    def play() -> list[WindowResult]:
        inputs = [InputSpec("public", seed) for seed in context.seeds.take(min(sets.count, ALONE_CALLS))]
        prepare = partial(make, sets, inputs, context.code, shape)
        limit_s = context.sampling.call_limit_s
        return gpu_window.run(worker, sets, inputs, prepare, launch_mode, 1, limit_s, alone=True)

    return retried(play)


def _audit_window(context: ScoringContext, worker: Worker, sets: Sets, shape: Shape, launch_mode: LaunchMode) -> None:
    """A window like the timed ones with half of its sets of hidden input classes. Several are verified; its time is dropped."""
    # Classes whose tensors have the sizes of the public ones, so that they fit in the same buffers.
    fitting = (name for name in context.code.input_classes if context.input_layout(shape, name) == sets.input_layout)
    input_classes = ["public", *fitting]
    dice = secrets.SystemRandom()

    def draw() -> list[InputSpec]:
        return [InputSpec(dice.choice((dice.choice(input_classes), "public")), seed) for seed in context.seeds.take(sets.count)]

    how = (launch_mode, context.sampling.audit_sample, context.sampling.call_limit_s)
    done = window(worker, sets, context.code, shape, draw, *how, tries=1)
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

    how = (launch_mode, context.sampling.sample, limit_s)
    return window(worker, sets, context.code, shape, draw, *how, tries=tries)


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


def place(context: ScoringContext, worker: Worker, shape: Shape, input_class: str, count: int) -> Sets:
    """`count` sets of this shape in the worker's buffers, which are made larger where they are too small."""
    memory, input_layout, output_layout = context.memory, context.input_layout(shape, input_class), context.output_layout(shape)
    reserve(context, worker, count * input_layout.set_bytes, count * output_layout.set_bytes)
    memory.trim()  # now, and not between windows
    assert worker.buffers is not None
    inputs, outputs = worker.buffers
    sets = Sets(memory, memory.staging(inputs), inputs, outputs, input_layout, output_layout, count)
    worker.resume()
    worker.order(
        "shape", limit_s=context.sampling.call_limit_s, sets=count, inputs=input_layout.message(), outputs=output_layout.message()
    )
    return sets


def reserve(context: ScoringContext, worker: Worker, *sizes_bytes: int) -> None:
    """Map buffers of at least these sizes for inputs and outputs into the worker. They stay until larger ones are needed."""
    held_bytes = [len(buffer.bytes) for buffer in worker.buffers or ()] or [0, 0]
    wanted_bytes = [max(pair) for pair in zip(held_bytes, sizes_bytes, strict=True)]
    if worker.buffers and wanted_bytes == held_bytes:
        return
    release(context, worker)  # before the larger ones come, so that both need not fit
    worker.resume()
    inputs, outputs = (context.memory.buffer(size_bytes) for size_bytes in wanted_bytes)
    worker.buffers = inputs, outputs
    worker.order("map", fds=[inputs.fd, outputs.fd], limit_s=context.sampling.call_limit_s, bytes=wanted_bytes)


def release(context: ScoringContext, worker: Worker) -> None:
    """Unmap the worker's buffers on both sides."""
    if worker.buffers:
        worker.resume()
        worker.order("map", limit_s=context.sampling.call_limit_s, bytes=[])
        worker.close_buffers()


def reserve_for(context: ScoringContext, worker: Worker, counts: Iterable[tuple[Shape, int]], *, hidden: bool = False) -> None:
    """Buffers for that many sets of each shape at once; with `hidden`, also for a check of every hidden input class."""
    sizes = []
    for shape, count in counts:
        sizes.append((count * context.input_layout(shape, "public").set_bytes, count * context.output_layout(shape).set_bytes))
        if hidden:
            checked = [CHECKED_CALLS * context.input_layout(shape, name).set_bytes for name in context.code.input_classes]
            sizes.append((max(checked, default=0), CHECKED_CALLS * context.output_layout(shape).set_bytes))
    reserve(context, worker, *(max(each) for each in zip(*sizes, strict=True)))


def shape_text(shape: Shape) -> str:
    """A shape on one line."""
    return ", ".join(f"{name}={size}" for name, size in shape.items())
