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
from arena.judge.device.layout import Layout
from arena.judge.device.memory import Buffer, Memory
from arena.judge.problem_code import Code, Inputs
from arena.judge.rejection import Rejection
from arena.judge.worker_client import Worker
from arena.schema import LaunchMode

"""How a window's calls are made and timed: replayed from a CUDA graph, one after the other on a stream, or on a CPU."""

DISTURBED, JITTER_S = 1.05, 50e-6
"""Publishing may take this much longer than alone, relative and absolute, before the judge says that somebody else ran."""
PUBLISH_TRIES = 4
"""A driver's hiccup lengthens one copy, and new inputs are drawn; somebody at work shows every time."""


@dataclass(frozen=True)
class Sets:
    """The shared buffers of one shape: room for `count` input sets and their outputs."""

    memory: Memory
    staged: torch.Tensor
    """Where the judge makes inputs before it publishes them."""
    inputs: Buffer
    outputs: Buffer
    input_layout: Layout
    output_layout: Layout
    count: int
    given: bool
    """Whether the solution is given the outputs and writes into them, as problem.yaml says."""
    alone_s: float
    """What publishing all inputs takes when nobody else uses the device; infinite where no time is taken."""

    def message(self) -> dict[str, object]:
        """What the worker is told about them."""
        layouts = {"inputs": self.input_layout.message(), "outputs": self.output_layout.message()}
        return {"sets": self.count, "memory": self.memory.kind, "given": self.given, **layouts}

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
    """Something ran while the worker was stopped and inputs were made, which it may have seen."""


class Draw(NamedTuple):
    """One input set to be made."""

    kind: str
    """The class of inputs: `public`, or one of the problem's hidden ones."""
    seed: int


@dataclass(frozen=True)
class Committed:
    """What a window left: times, and the outputs of the secret sample, taken before `t1`."""

    elapsed_s: float
    """`t1 - t0` on CLOCK_MONOTONIC_RAW."""
    device_s: float
    """The worker's own device clock over all calls; not believed without `elapsed_s`."""
    draws: Sequence[Draw]
    """What each set was made of."""
    sample: Mapping[int, tuple[torch.Tensor, ...]]
    """Set index -> its outputs as they were when the window closed."""


@dataclass
class Seeds:
    """Seeds for input sets, from a 128-bit secret drawn for this scoring. No seed is used twice unless asked for."""

    secret: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    drawn: int = 0

    def take(self, count: int) -> list[int]:
        """The next `count` seeds, each 63 bits."""
        numbers = range(self.drawn, self.drawn + count)
        self.drawn += count
        digests = (hashlib.sha256(self.secret + number.to_bytes(8, "little")).digest() for number in numbers)
        return [int.from_bytes(digest[:8], "little") >> 1 for digest in digests]


def window(
    worker: Worker,
    sets: Sets,
    code: Code,
    shape: Mapping[str, int],
    draw: Callable[[], Sequence[Draw]],
    *,
    launch_mode: LaunchMode,
    sample: int,
    limit_s: float,
    tries: int = PUBLISH_TRIES,
) -> Committed:
    """Run one call per set drawn; the worker's processes are stopped but between t0 and t1. `sample` outputs are taken.

    `tries` is how often inputs are made before it is Disturbed.

    The inputs did not exist before the worker was stopped, what is in the output buffers at t1 is all that counts, and which
    of them are looked at is drawn only when the reply is there: until then nothing about the sample exists anywhere.
    """
    worker.freeze()
    draws = publish(worker, sets, code, shape, draw, tries)
    begin_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    worker.send("run", calls=len(draws), launch_mode=launch_mode)
    worker.resume()
    device_s = worker.reply("run", limit_s)
    chosen = secrets.SystemRandom().sample(range(len(draws) or sets.count), sample)
    taken = {index: tuple(view.clone() for view in sets.output(index)) for index in chosen}
    sets.memory.settle()
    end_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    worker.freeze()
    return Committed((end_ns - begin_ns) / 1e9, device_s, draws, taken)


def publish(
    worker: Worker,
    sets: Sets,
    code: Code,
    shape: Mapping[str, int],
    draw: Callable[[], Sequence[Draw]],
    tries: int = PUBLISH_TRIES,
) -> Sequence[Draw]:
    """Make new inputs out of the worker's sight and copy them to where it sees them; Disturbed when somebody ran meanwhile.

    Whoever ran has seen no values that are kept: they are made again, after the worker was stopped once more. He may have seen
    which classes of inputs they are of. So where that is secret there is only one of the `tries`.
    """
    for _ in range(tries):
        worker.no_packet_waits()
        draws = draw()
        for index, (kind, seed) in enumerate(draws):
            write(code.make_inputs(shape, seed, kind, sets.memory.device), sets.stage(index))
        poison(sets, len(draws), seed=secrets.randbits(63))
        sets.memory.settle()
        took_s, ran_ns = sets.memory.publish(sets.staged, sets.inputs, meanwhile=worker.ran_ns)
        if not ran_ns and took_s <= DISTURBED * sets.alone_s + JITTER_S:
            return draws
    what = f"A process of the submission ran ({ran_ns / 1e6:.3g} ms)"
    if not ran_ns:
        longer = f"publishing took {took_s * 1e3:.3g} ms, {sets.alone_s * 1e3:.3g} alone"
        what = f"Something of the submission ran on the GPU ({longer})"
    often = f", in each of {tries} tries" if tries > 1 else ""
    raise Disturbed("cheated", f"{what} while the worker was stopped between two windows{often}")


def write(fresh: Inputs, views: Inputs) -> None:
    """Copy a new input set into its place."""
    for tensor, view in zip(fresh, views, strict=True):
        if tensor.shape != view.shape or tensor.dtype != view.dtype:
            raise JudgeError(
                f"make_inputs gave {tuple(tensor.shape)} {tensor.dtype} where an earlier seed gave {tuple(view.shape)} "
                f"{view.dtype}: sizes must depend on the shape and the class of inputs alone"
            )
        view.copy_(tensor)


def poison(sets: Sets, calls: int, seed: int) -> None:
    """Fill the outputs with wrong values, so that a call that writes nothing, or not everything, cannot pass.

    What a result is copied to holds normal noise rather than NaN: a kernel cannot tell a poisoned buffer from a used one and
    behave only then. Outputs that a solution is given hold NaN, since it may leave out elements, and noise passes for those
    that are small beside the rest of their row. It learns nothing from that: they hold it before every call that it is judged by.
    """
    noise = torch.Generator(sets.memory.device).manual_seed(seed)
    for index in range(calls):
        for view in sets.output(index):
            if sets.given and view.is_floating_point():
                view.fill_(math.nan)
            elif sets.given:
                view.random_(generator=noise)
            elif view.is_floating_point():
                view.copy_(torch.randn(view.shape, generator=noise, device=view.device))
            else:
                view.random_(0, 127, generator=noise)
