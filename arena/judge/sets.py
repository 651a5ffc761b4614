"""The sets of one shape in the shared buffers, and what one window of calls on them gave."""

from __future__ import annotations

import hashlib
import math
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from arena.errors import JudgeError
from arena.judge.device.memory import Buffer, Layout, Memory
from arena.judge.problem_code import Inputs, ProblemCode, Shape
from arena.judge.rejection import Rejection


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

    def stage(self, index: int) -> Inputs:
        """Where input set `index` is made."""
        return self.input_layout.views(self.staged, index)

    def made(self, index: int) -> Inputs | None:
        """Input set `index` as it was made last, where no worker can change it; None where the worker's buffer is that place."""
        return None if self.staged is self.inputs.bytes else self.stage(index)

    def input(self, index: int) -> Inputs:
        """Input set `index` as the worker sees it."""
        return self.input_layout.views(self.inputs.bytes, index)

    def all_outputs(self, count: int) -> Inputs:
        """The first `count` sets of each output as one tensor, a row for each."""
        rows = self.outputs.bytes[: count * self.output_layout.set_bytes].view(count, -1)
        slots = self.output_layout.slots
        return tuple(rows[:, slot.offset_bytes :][:, : slot.size_bytes].view(slot.dtype) for slot in slots)

    def output(self, index: int) -> Inputs:
        """Output set `index` as the worker sees it."""
        return self.output_layout.views(self.outputs.bytes, index)


class Disturbed(Rejection):
    """Something ran while the worker was frozen and inputs were made, and may have seen them."""


class Late(Disturbed):
    """Something computed on the GPU while inputs were published."""


class InputSpec(NamedTuple):
    """What one input set is made from."""

    input_class: str
    """`public`, or one of the problem's hidden classes."""
    seed: int


Draw = Callable[[], Sequence[InputSpec]]


@dataclass(frozen=True)
class WindowResult:
    """What one window gave: its time, and the outputs of the secret sample, copied before the clock stopped."""

    elapsed_s: float
    """From the moment the inputs are there to the moment the sample is copied, by a clock that the worker cannot reach: on a GPU
    the device's, read in the judge's own stream; else CLOCK_MONOTONIC_RAW."""
    publish_s: float
    """What publishing the inputs took on a GPU; else 0."""
    inputs: Sequence[InputSpec]
    """What each set was made from."""
    sample: Mapping[int, tuple[torch.Tensor, ...]]
    """Set index -> its outputs as they were when the window closed."""
    in_place: bool = True
    """Whether the inputs are still where the worker found them. False where calls came one at a time, all on one set."""
    unsampled: tuple[torch.Tensor, ...] = ()
    """The copied outputs of a call alone that is not in the sample."""


@dataclass
class Seeds:
    """Seeds for input sets, from a 128-bit secret drawn for this scoring. `take` never gives a seed twice."""

    secret: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    taken: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, count: int) -> list[int]:
        """The next `count` seeds, each 63 bits."""
        with self.lock:  # workers that compile at the same time take seeds, too
            numbers = range(self.taken, self.taken + count)
            self.taken += count
        digests = (hashlib.sha256(self.secret + number.to_bytes(8, "little")).digest() for number in numbers)
        return [int.from_bytes(digest[:8], "little") >> 1 for digest in digests]


def make(sets: Sets, inputs: Sequence[InputSpec], code: ProblemCode, shape: Shape) -> None:
    """Make these input sets where only the judge can see them, and fill the outputs with wrong values."""
    made: dict[InputSpec, int] = {}
    for index, each in enumerate(inputs):
        if each in made:
            write(sets.stage(made[each]), sets.stage(index))
        else:
            write(code.make_inputs(shape, each.seed, each.input_class, sets.memory.device), sets.stage(index))
            made[each] = index
    poison(sets, len(inputs), seed=secrets.randbits(63))
    sets.memory.settle()


def choose(count: int, sample: int) -> list[int]:
    """A secret sample of the numbers below `count`; all of them where there are fewer."""
    return secrets.SystemRandom().sample(range(count), min(sample, count))


def write(fresh: Inputs, views: Inputs) -> None:
    """Copy a new input set into its views."""
    for tensor, view in zip(fresh, views, strict=True):
        if tensor.shape != view.shape or tensor.dtype != view.dtype:
            text = f"make_inputs gave {tuple(tensor.shape)} {tensor.dtype} where an earlier seed gave {tuple(view.shape)}"
            raise JudgeError(f"{text} {view.dtype}: sizes must depend on the shape and the input class alone")
        view.copy_(tensor)


def poison(sets: Sets, calls: int, seed: int) -> None:
    """Fill the outputs with wrong values, so that a call that writes nothing, or leaves something out, cannot pass.

    These are NaN, and random bytes where no NaN exists. Not noise of the answer's size: it would pass for elements that are small
    beside the rest of their row. A solution learns nothing from NaN, since every call that counts finds it.
    """
    noise = torch.Generator(sets.memory.device).manual_seed(seed)
    for index in range(calls):
        poison_set(sets, index, noise)


def poison_set(sets: Sets, index: int, noise: torch.Generator | None = None) -> None:
    """Fill one set's outputs with wrong values."""
    for view in sets.output(index):
        if view.is_floating_point():
            view.fill_(math.nan)
        else:
            most = 2 if view.dtype is torch.bool else 256
            view.reshape(-1).view(torch.uint8).random_(0, most, generator=noise)
