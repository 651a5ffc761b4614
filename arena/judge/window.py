"""One window: fresh inputs, a clock that the worker cannot reach, and the outputs taken before they are verified."""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from arena.errors import JudgeError
from arena.judge.device.memory import Buffer, Layout, Memory
from arena.judge.problem_code import Inputs, ProblemCode, Shape
from arena.judge.rejection import Rejection
from arena.judge.worker_client import Worker
from arena.schema import LaunchMode

DISTURBED, JITTER_S = 1.05, 50e-6
"""How much longer than alone publishing may take, relative and absolute. Beyond that, other work ran on the device."""
PREPARE_TRIES = 4
"""A driver's hiccup lengthens one copy, and new inputs are drawn. A submission at work shows in every try."""


@dataclass(frozen=True)
class Sets:
    """The shared buffers of one shape: room for `count` input sets and their outputs."""

    memory: Memory
    staged: torch.Tensor
    """Where the judge makes inputs before it publishes them to the worker."""
    inputs: Buffer
    outputs: Buffer
    input_layout: Layout
    output_layout: Layout
    count: int
    outputs_given: bool
    """Whether the solution is given the outputs and writes into them (`outputs_given` in problem.yaml)."""
    publish_alone_s: float
    """How long publishing all inputs takes when no other process uses the device; infinite where windows are not timed."""

    def message(self) -> dict[str, object]:
        """The fields of the order that gives the worker these buffers."""
        layouts = {"inputs": self.input_layout.message(), "outputs": self.output_layout.message()}
        return {"sets": self.count, "memory": self.memory.kind, "given": self.outputs_given, **layouts}

    def stage(self, index: int) -> Inputs:
        """Where input set `index` is made."""
        return self.input_layout.views(self.staged, index)

    def input(self, index: int) -> Inputs:
        """Input set `index` as the worker sees it."""
        return self.input_layout.views(self.inputs.bytes, index)

    def output(self, index: int) -> Inputs:
        """Output set `index` as the worker sees it."""
        return self.output_layout.views(self.outputs.bytes, index)


class Disturbed(Rejection):
    """Something ran while the worker was frozen and inputs were made, and may have seen them."""


class InputSpec(NamedTuple):
    """What one input set is made from."""

    input_class: str
    """`public`, or one of the problem's hidden classes."""
    seed: int


Draw = Callable[[], Sequence[InputSpec]]


@dataclass(frozen=True)
class WindowResult:
    """What one window gave: its times, and the outputs of the secret sample, copied before `t1`."""

    elapsed_s: float
    """`t1 - t0` on CLOCK_MONOTONIC_RAW."""
    device_s: float
    """All calls by the device's clock, as the worker reports it; not believed without `elapsed_s`."""
    inputs: Sequence[InputSpec]
    """What each set was made from."""
    sample: Mapping[int, tuple[torch.Tensor, ...]]
    """Set index -> its outputs as they were when the window closed."""


@dataclass
class Seeds:
    """Seeds for input sets, from a 128-bit secret drawn for this scoring. `take` never gives a seed twice."""

    secret: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    taken: int = 0

    def take(self, count: int) -> list[int]:
        """The next `count` seeds, each 63 bits."""
        numbers = range(self.taken, self.taken + count)
        self.taken += count
        digests = (hashlib.sha256(self.secret + number.to_bytes(8, "little")).digest() for number in numbers)
        return [int.from_bytes(digest[:8], "little") >> 1 for digest in digests]


def window(
    worker: Worker,
    sets: Sets,
    code: ProblemCode,
    shape: Shape,
    draw: Draw,
    *,
    launch_mode: LaunchMode,
    sample: int,
    limit_s: float,
    tries: int = PREPARE_TRIES,
) -> WindowResult:
    """Run one call on each input set that `draw` names; the worker's processes run only between t0 and t1.

    The inputs did not exist before the worker was frozen. What the output buffers hold at t1 is all that counts. The judge draws
    the `sample` outputs to verify only when the reply is there: until then nothing about the sample exists anywhere.
    Disturbed when something ran beside each of the `tries` at making inputs.
    """
    worker.freeze()
    inputs = prepare_inputs(worker, sets, code, shape, draw, tries)
    begin_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    worker.send("run", calls=len(inputs), launch_mode=launch_mode)
    worker.resume()
    device_s = worker.reply("run", limit_s)
    chosen = secrets.SystemRandom().sample(range(len(inputs) or sets.count), sample)
    outputs = {index: tuple(view.clone() for view in sets.output(index)) for index in chosen}
    sets.memory.settle()
    end_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    worker.freeze()
    return WindowResult((end_ns - begin_ns) / 1e9, device_s, inputs, outputs)


def prepare_inputs(
    worker: Worker, sets: Sets, code: ProblemCode, shape: Shape, draw: Draw, tries: int = PREPARE_TRIES
) -> Sequence[InputSpec]:
    """Make new inputs where the worker cannot see them, then publish them to it; Disturbed when something ran meanwhile.

    What ran has seen no values that are kept: the judge freezes the worker again and makes new ones. It may have seen their
    input classes. So where those are secret, there is only one try.
    """
    for _ in range(tries):
        worker.reject_stray_packets()
        inputs = draw()
        for index, (input_class, seed) in enumerate(inputs):
            write(code.make_inputs(shape, seed, input_class, sets.memory.device), sets.stage(index))
        poison(sets, len(inputs), seed=secrets.randbits(63))
        sets.memory.settle()
        took_s, ran_ns = sets.memory.publish(sets.staged, sets.inputs, meanwhile=worker.ran_ns)
        if not ran_ns and took_s <= DISTURBED * sets.publish_alone_s + JITTER_S:
            return inputs
    what = f"A process of the submission ran ({ran_ns / 1e6:.3g} ms)"
    if not ran_ns:
        longer = f"publishing took {took_s * 1e3:.3g} ms, and {sets.publish_alone_s * 1e3:.3g} ms before solution.py was loaded"
        what = f"Something of the submission ran on the GPU ({longer})"
    repeated = f", in each of {tries} tries" if tries > 1 else ""
    raise Disturbed("cheated", f"{what} while the worker was stopped between two windows{repeated}")


def write(fresh: Inputs, views: Inputs) -> None:
    """Copy a new input set into its views."""
    for tensor, view in zip(fresh, views, strict=True):
        if tensor.shape != view.shape or tensor.dtype != view.dtype:
            text = f"make_inputs gave {tuple(tensor.shape)} {tensor.dtype} where an earlier seed gave {tuple(view.shape)}"
            raise JudgeError(f"{text} {view.dtype}: sizes must depend on the shape and the input class alone")
        view.copy_(tensor)


def poison(sets: Sets, calls: int, seed: int) -> None:
    """Fill the outputs with wrong values, so that a call that writes nothing, or leaves something out, cannot pass.

    Buffers that results are copied to hold normal noise, not NaN: a kernel cannot tell a poisoned buffer from a used one and
    behave only then. Outputs that the solution is given hold NaN: it may leave out elements, and noise passes for elements that
    are small beside the rest of their row. The solution learns nothing from NaN: every call that counts finds it.
    """
    noise = torch.Generator(sets.memory.device).manual_seed(seed)
    for index in range(calls):
        for view in sets.output(index):
            if sets.outputs_given and view.is_floating_point():
                view.fill_(math.nan)
            elif sets.outputs_given:
                view.random_(generator=noise)
            elif view.is_floating_point():
                view.copy_(torch.randn(view.shape, generator=noise, device=view.device))
            else:
                view.random_(0, 127, generator=noise)
