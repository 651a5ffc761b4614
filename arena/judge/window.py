"""One window: fresh inputs, a clock that the worker cannot reach, and the outputs taken before they are verified."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from arena.judge import gpu_window
from arena.judge.context import ScoringContext
from arena.judge.problem_code import ProblemCode, Shape
from arena.judge.sets import Disturbed, Draw, InputSpec, Sets, WindowResult, choose, make
from arena.judge.worker_client import Worker
from arena.schema import LaunchMode

T = TypeVar("T")
PREPARE_TRIES = 4
"""The clock of a stopped thread may still move once, and new inputs are drawn. A submission at work shows in every try."""


class WindowSpec(NamedTuple):
    """How the windows of one shape are timed."""

    launch_mode: LaunchMode
    calls: int
    """In one window."""


def window(
    worker: Worker,
    sets: Sets,
    code: ProblemCode,
    shape: Shape,
    draw: Draw,
    launch_mode: LaunchMode,
    sample: int,
    limit_s: float,
    *,
    tries: int = PREPARE_TRIES,
) -> WindowResult:
    """Run one call on each input set that `draw` names.

    The inputs did not exist before the worker was frozen. What the output buffers hold when the clock stops is all that counts.
    The judge draws the `sample` of outputs to verify where the worker cannot see it.

    Disturbed when something ran on a processor beside each of the `tries`. What ran has seen no values that are kept: the
    judge freezes the worker again and makes new ones. It may have seen their input classes. So where those are secret, there is
    only one try.
    """
    if worker.gate is not None:

        def play() -> WindowResult:
            inputs = draw()
            prepare = partial(make, sets, inputs, code, shape)
            [done] = gpu_window.run(worker, sets, inputs, prepare, launch_mode, sample, limit_s)
            return done

        return retried(play, tries)
    worker.freeze()
    # Written here, before there are inputs: new memory takes six times as long to fill, in some windows and not in others.
    kept = [tuple(view.clone() for view in sets.output(0)) for _ in range(min(sample, sets.count))]
    inputs = prepare_inputs(worker, sets, code, shape, draw, tries)
    begin_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    worker.send("run", calls=len(inputs), launch_mode=launch_mode)
    worker.resume()
    worker.reply("run", limit_s)
    outputs = dict(zip(choose(len(inputs) or sets.count, sample), kept, strict=False))
    for index, copies in outputs.items():
        for copy, view in zip(copies, sets.output(index), strict=True):
            copy.copy_(view)
    end_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    worker.freeze()
    return WindowResult((end_ns - begin_ns) / 1e9, 0.0, inputs, outputs)


def public_window(
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


def retried(play: Callable[[], T], tries: int = PREPARE_TRIES) -> T:
    """What `play` returns in the first of its `tries` that is not disturbed."""
    for left in reversed(range(tries)):
        try:
            return play()
        except Disturbed:
            if not left:
                raise
    raise AssertionError("no tries")


def prepare_inputs(
    worker: Worker, sets: Sets, code: ProblemCode, shape: Shape, draw: Draw, tries: int = PREPARE_TRIES
) -> Sequence[InputSpec]:
    """Make new inputs in the buffers of a frozen worker; Disturbed when it ran meanwhile, in each of `tries`."""
    for _ in range(tries):
        worker.reject_stray_packets()
        inputs = draw()
        make(sets, inputs, code, shape)
        ran_ns = worker.ran_ns()
        if not ran_ns:
            return inputs
    raise Disturbed("cheated", disturbed_text(ran_ns, tries))


def disturbed_text(ran_ns: int, tries: int) -> str:
    """What to say about CPU time that a stopped worker used."""
    repeated = f", in each of {tries} tries" if tries > 1 else ""
    return f"A process of the submission ran ({ran_ns / 1e6:.3g} ms) while the worker was stopped between two windows{repeated}"
