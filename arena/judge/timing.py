"""Check and time one shape in one worker."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from arena.judge import gpu_window
from arena.judge.buffers import place
from arena.judge.context import CHECKED_CALLS, SHORTEST_CALL_S, ScoringContext
from arena.judge.overhead import Overhead
from arena.judge.problem_code import Shape
from arena.judge.rejection import NotAloneError, Rejection
from arena.judge.sampling import Sampling
from arena.judge.score_math import half_width
from arena.judge.sets import Disturbed, InputSpec, Late, Sets, WindowResult, choose, make, write
from arena.judge.verify import verify, worse, written
from arena.judge.window import public_window, window
from arena.judge.worker_client import Worker
from arena.schema import Errors, LaunchMode

TIMING_TRIES = 4
"""How often one worker may time a shape from its first window when something ran beside it. A driver's hiccup is rarer than one
window in a thousand; a submission that looks every time never finishes. More tries would let one that disturbs itself pick its
luckiest."""
ALONE_CALLS, LEAST_ALONE_CALLS = 9, 6
"""Most calls alone in one batch, and how few a batch has where a window holds few calls, which are long."""
RETRY_PAUSE_S = 0.5
"""The pause before a retry, with the worker frozen; each is longer by this. So a short disturbance does not spoil four tries."""


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
        with context.memory.turn():
            sets = place(context, worker, shape, "public", 1)
            (seed,) = context.seeds.take(1)
            write(context.code.make_inputs(shape, seed, "public", context.memory.device), sets.input(0))
            context.memory.settle()
        worker.order("run", calls=1, launch_mode="call", limit_s=limit_s)
        worker.order("trim", limit_s=limit_s)


def build(context: ScoringContext, worker: Worker, shapes: Iterable[Shape]) -> None:
    """Load the submission, call it once on each of the shapes, and stop it."""
    worker.load(context.sampling.build_limit_s)
    for shape in shapes:
        first_call(context, worker, shape)
    worker.set_aside()


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
    trial = min(context.sampling.min_calls, context.room(shape))
    one, done = try_window(context, worker, shape, launch_mode, trial)
    return context.calls_that_fill(shape, (done.elapsed_s - one.elapsed_s) / (trial - 1))


def try_window(
    context: ScoringContext, worker: Worker, shape: Shape, launch_mode: LaunchMode, calls: int
) -> tuple[WindowResult, WindowResult]:
    """After the first calls a window of one call, and one of `calls`. Uncapturable spoils the worker.

    Captured calls are verified. The others were when the shape was checked.
    """
    captured = launch_mode == "graph"
    with _locate_rejection(shape, "public"):
        sets = place(context, worker, shape, "public", calls)
        _warm_up(context, worker, sets, shape, launch_mode, verified=captured)
        one, done = (
            public_window(context, worker, sets, shape, count, launch_mode, context.sampling.call_limit_s) for count in (1, calls)
        )
        if captured:
            verify(done, sets, context.code, context.problem, shape)
    return one, done


def time_shape(
    context: ScoringContext, worker: Worker, shape: Shape, launch_mode: LaunchMode, calls: int, overhead: Overhead
) -> ShapeTiming:
    """Time one shape until the interval of its median is narrow enough.

    At secret places among the timed windows come audit windows: the same calls in the same buffers, with hidden input classes
    mixed in. So the code that is timed is the code that passes them, however it tells a check from a timing.
    """
    disturbed, late = list[str](), False
    while True:
        try:
            return replace(_time_once(context, worker, shape, launch_mode, calls, overhead), disturbed=tuple(disturbed))
        except Disturbed as rejection:
            disturbed.append(rejection.message)
            late |= isinstance(rejection, Late)
            if len(disturbed) == TIMING_TRIES:
                text = f"Timing was disturbed in each of {TIMING_TRIES} tries: {'; '.join(disturbed)}"
                if late and (pids := context.strangers(0)):
                    raise NotAloneError(pids, text) from None
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
            done = public_window(context, worker, sets, shape, calls, launch_mode, sampling.call_limit_s, tries=1)
            worst = worse(worst, verify(done, sets, context.code, context.problem, shape))
            written(sets.all_outputs(calls), context.problem, shape)
            elapsed.append(done.elapsed_s + overhead.late_s(done, calls))
        # On some shapes batches on different sets lie 2 % apart, and a window has the mean over all of its sets.
        for number in choose(sets.count, sampling.alone_windows):
            for each, error in _alone(context, worker, sets, shape, launch_mode, number):
                worst = worse(worst, error)
                alone.append(each.elapsed_s + overhead.late_s(each, 1))
    return ShapeTiming(launch_mode, calls, tuple(elapsed), tuple(alone), overhead, worst)


def calls_alone(sets: int) -> int:
    """How many calls a batch has, its first and last included, where a window has calls on that many sets."""
    return min(sets, ALONE_CALLS, max(sets * 2 // 3, LEAST_ALONE_CALLS))


def _alone(
    context: ScoringContext, worker: Worker, sets: Sets, shape: Shape, launch_mode: LaunchMode, number: int
) -> list[tuple[WindowResult, Errors]]:
    """Windows of one call each on a GPU, from a cold cache, with their errors: what a call takes that has no others beside it.

    All are on set `number`: what a call may find prepared by a call on another set is not there. Some, at secret places, are
    audits: of a hidden input class, verified, and left out of what is returned.
    """
    sampling, count = context.sampling, calls_alone(sets.count)
    audited = [1 + place for place in choose(count - 2, min(sampling.alone_audits, (count - 2) // 2))]
    dice, classes = secrets.SystemRandom(), _classes(context, sets, shape)[1:] or ["public"]
    seeds = enumerate(context.seeds.take(count))
    inputs = [InputSpec(dice.choice(classes) if index in audited else "public", seed) for index, seed in seeds]
    prepare = partial(make, sets, inputs, context.code, shape)
    how = (launch_mode, sampling.alone_sample, sampling.call_limit_s)
    worker.resume()
    worker.order("choose", limit_s=sampling.call_limit_s, set=number)
    windows = gpu_window.run(worker, sets, inputs, prepare, *how, alone=number, audited=audited)
    found = []
    for index, each in enumerate(windows, start=1):
        error = verify(each, sets, context.code, context.problem, shape)
        if each.unsampled:
            written(tuple(tensor.reshape(1, -1) for tensor in each.unsampled), context.problem, shape)
        if index not in audited:
            found.append((each, error))
    return found


def _classes(context: ScoringContext, sets: Sets, shape: Shape) -> list[str]:
    """The input classes whose tensors have the sizes of the public ones, so that they fit in the same buffers."""
    fitting = (name for name in context.code.input_classes if context.input_layout(shape, name) == sets.input_layout)
    return ["public", *fitting]


def _audit_window(context: ScoringContext, worker: Worker, sets: Sets, shape: Shape, launch_mode: LaunchMode) -> None:
    """A window like the timed ones with half of its sets of hidden input classes. Several are verified; its time is dropped."""
    input_classes, dice = _classes(context, sets, shape), secrets.SystemRandom()

    def draw() -> list[InputSpec]:
        return [InputSpec(dice.choice((dice.choice(input_classes), "public")), seed) for seed in context.seeds.take(sets.count)]

    how = (launch_mode, context.sampling.audit_sample, context.sampling.call_limit_s)
    done = window(worker, sets, context.code, shape, draw, *how, tries=1)
    verify(done, sets, context.code, context.problem, shape)


def _warm_up(
    context: ScoringContext, worker: Worker, sets: Sets, shape: Shape, launch_mode: LaunchMode, *, verified: bool = True
) -> None:
    """Make the untimed first calls in these buffers, all on the same inputs, and capture the graph."""
    limit_s = context.sampling.first_call_limit_s

    def draw() -> list[InputSpec]:
        return [InputSpec("public", seed) for seed in context.seeds.take(1)] * sets.count

    done = window(worker, sets, context.code, shape, draw, plain_mode(context), context.sampling.sample, limit_s)
    if verified:
        verify(done, sets, context.code, context.problem, shape)
    if launch_mode == "graph":
        worker.resume()
        worker.order("capture", limit_s=limit_s)


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
