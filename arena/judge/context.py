"""What one scoring shares: the problem, its code, the device with its memory, the effort, seeds and stopwatch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch

from arena.errors import JudgeError
from arena.judge import problem_code
from arena.judge.device.device import OpenDevice
from arena.judge.device.memory import Layout, Memory, layout
from arena.judge.problem_code import ProblemCode, Shape
from arena.judge.sampling import Sampling
from arena.judge.score_math import Ceiling, ceiling
from arena.judge.sets import Seeds
from arena.judge.verify import verify_own
from arena.schema import Device, Problem, Profile, Timings

SHORTEST_CALL_S = 1e-7
"""No call takes less. A window shorter than its overhead was disturbed, and must not reach the statistics as zero."""
CHECKED_CALLS = 3
"""Calls of a correctness window: different input sets, and the first one again."""
SETS_SHARE, JUDGE_SHARE = 0.5, 0.75
"""Most of a GPU's free memory that one shape's sets may take, and that they and the judge's verification may take together. The
solution has the rest."""
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
    notes: list[str] = field(default_factory=list)
    """What went otherwise than usual, for the record of the score."""
    strangers: Callable[[int], list[int]] = lambda least_bytes: []
    """As of the device (`OpenDevice.strangers`)."""
    _layouts: dict[tuple[object, ...], Layout] = field(default_factory=dict)

    def ceiling(self, shape: Shape) -> Ceiling:
        """The least time that a call takes on the device."""
        return ceiling(self.problem.flops(shape), self.problem.bytes(shape), self.device, self.code.rate)

    @cached_property
    def verification_bytes(self) -> int:
        """The most GPU memory that verifying one answer takes, over all shapes: measured with the reference's own answers.

        JudgeError where one does not fit.
        """
        shapes = (*self.problem.timed("gpu"), *self.code.extra_shapes)
        return max(self._verifying(shape) for shape in shapes)

    def fits(self, inputs_bytes: int, outputs_bytes: int) -> bool:
        """Whether buffers of these sizes leave enough for what else the judge and the solution need."""
        limit_bytes = self._limit_bytes()
        return limit_bytes is None or held_bytes(inputs_bytes, outputs_bytes) <= limit_bytes

    def room(self, shape: Shape) -> int:
        """How many sets of the public inputs there is memory for; JudgeError where the device holds too few."""
        free_bytes, limit_bytes = self.memory.free_bytes(), self._limit_bytes()  # first: it may refuse the device
        inputs_bytes, outputs_bytes = self.input_layout(shape, "public").set_bytes, self.output_layout(shape).set_bytes
        if free_bytes is None or limit_bytes is None:
            return max(self.sampling.sets_bytes // (inputs_bytes + outputs_bytes), self.sampling.min_calls)
        room_bytes = min(int(free_bytes * SETS_SHARE), limit_bytes)
        each_bytes = held_bytes(inputs_bytes, outputs_bytes)
        if (count := room_bytes // each_bytes) < CHECKED_CALLS:
            need, room, free = (size / 1e9 for size in (CHECKED_CALLS * each_bytes, max(room_bytes, 0), free_bytes))
            why = f"{CHECKED_CALLS} sets take {need:.1f} GB, and {room:.1f} GB of the {free:.1f} that are free are for them"
            raise self._too_small(shape, f"{why} (verifying one answer takes {self.verification_bytes / 1e9:.1f} GB)")
        return count

    def _limit_bytes(self) -> int | None:
        """What a GPU has for sets, where the judge can verify an answer beside them."""
        free_bytes = self.memory.free_bytes()
        return None if free_bytes is None else int(free_bytes * JUDGE_SHARE) - self.verification_bytes

    def _verifying(self, shape: Shape) -> int:
        try:
            return self.memory.peak_bytes(lambda: verify_own(self.code, self.problem, shape, self.memory.device))
        except torch.OutOfMemoryError:
            raise self._too_small(shape, "there is not the memory to verify one answer") from None

    def _too_small(self, shape: Shape, why: str) -> JudgeError:
        text = f"{self.problem.name} at {shape_text(shape)} does not fit on this device: {why}"
        return JudgeError(f"{text}; free its memory or choose a larger device")

    def calls_that_fill(self, shape: Shape, call_s: float) -> int:
        """How many calls of that time a window holds, within the bounds of the sampling and of the memory."""
        sampling, room = self.sampling, self.room(shape)
        fill = min(round(sampling.window_s / max(call_s, SHORTEST_CALL_S)), sampling.max_calls)
        cold = -(-sampling.cold_bytes // self.set_bytes(shape))
        if cold > room:
            needed = f"{sampling.cold_bytes / 1e6:.0f} MB of input sets are needed to exceed this device's cache"
            raise JudgeError(f"{needed}, and there is room for {room} sets of {shape_text(shape)}: free some of its memory")
        return min(max(fill, cold, sampling.min_calls), room)

    def set_bytes(self, shape: Shape) -> int:
        """What one set of public inputs and its outputs take."""
        return self.input_layout(shape, "public").set_bytes + self.output_layout(shape).set_bytes

    def most_calls(self, shape: Shape) -> int:
        """The calls that fill a window where each takes the least time that it can."""
        return self.calls_that_fill(shape, self.ceiling(shape).seconds)

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


def held_bytes(inputs_bytes: int, outputs_bytes: int) -> int:
    """What buffers of these sizes take in all: the judge makes inputs in a place of its own, and copies outputs to another."""
    return 2 * (inputs_bytes + outputs_bytes)


def require_room(problem: Problem, profile: Profile, device: OpenDevice) -> None:
    """JudgeError where a shape does not fit into the device's free memory. torch keeps nothing of what this takes."""
    code = problem_code.load(problem, profile)
    context = ScoringContext(problem, code, device.record, device.memory, device.sampling, Seeds(), Stopwatch())
    for shape in (*problem.timed(profile), *code.extra_shapes):
        context.room(shape)
    torch.cuda.empty_cache()


def shape_text(shape: Shape) -> str:
    """A shape on one line."""
    return ", ".join(f"{name}={size}" for name, size in shape.items())
