"""Check and time one shape in one worker."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import torch

from arena.judge.buffers import HostBuffer
from arena.judge.code import Code
from arena.judge.layout import layout
from arena.judge.link import Worker
from arena.judge.plan import Plan
from arena.judge.refusal import Refusal
from arena.judge.statistics import half_width
from arena.judge.verify import same, verify
from arena.judge.window import Committed, Seeds, Sets, window
from arena.schema import Errors, Problem, Tensor

CHECKED_CALLS = 3
"""Calls of a correctness window: two different input sets, and the first once more."""


@dataclass(frozen=True)
class Timed:
    """One shape's samples from one worker process."""

    samples_s: tuple[float, ...]
    """Seconds per call, one for each window, the empty window taken out."""
    empty_s: float
    calls: int
    error: Errors


@dataclass(frozen=True)
class Subject:
    """What is being scored, and how."""

    problem: Problem
    code: Code
    plan: Plan
    seeds: Seeds


def check(subject: Subject, worker: Worker, shape: Mapping[str, int], mode: str) -> Errors:
    """Verify a few calls on one shape and one class of inputs. Looks like any other window from inside."""
    first, second = subject.seeds.take(2)
    with _about(shape, mode), _buffers(subject, worker, shape, mode, CHECKED_CALLS) as sets:
        everything = frozenset(range(CHECKED_CALLS))
        limit_s = subject.plan.first_call_limit_s
        done = window(worker, sets, subject.code, shape, mode, [first, second, first], sample=everything, limit_s=limit_s)
        errors = verify(done, sets, subject.code, subject.problem, shape, mode)
        same(done.sample[0], done.sample[2], subject.code, subject.problem, shape)
    return errors


def time_shape(subject: Subject, worker: Worker, shape: Mapping[str, int], calls: int | None) -> Timed:
    """Time one shape until its median is known well enough. `calls` per window are found here when not given."""
    plan = subject.plan
    if calls is None:
        with _about(shape, "public"):
            calls = _calls(subject, worker, shape)
    with _about(shape, "public"), _buffers(subject, worker, shape, "public", calls) as sets:
        worst = Errors(rel_fro=0, row=0, el=0)
        elapsed: list[float] = []
        empty: list[float] = []
        _run(subject, worker, sets, shape, calls, plan.first_call_limit_s)
        while not _enough([e / calls for e in elapsed], plan):
            if len(elapsed) % plan.empty_every == 0:
                empty.append(_run(subject, worker, sets, shape, 0, plan.call_limit_s).elapsed_s)
            done = _run(subject, worker, sets, shape, calls, plan.call_limit_s)
            found = verify(done, sets, subject.code, subject.problem, shape, "public")
            worst = Errors(**{key: max(value, getattr(worst, key)) for key, value in found.model_dump().items()})
            elapsed.append(done.elapsed_s)
    cost_s = median(empty)
    return Timed(tuple((e - cost_s) / calls for e in elapsed), cost_s, calls, worst)


def _run(subject: Subject, worker: Worker, sets: Sets, shape: Mapping[str, int], calls: int, limit_s: float) -> Committed:
    # Also taken from a window without calls, where it is only part of the cost.
    sample = frozenset(secrets.SystemRandom().sample(range(calls or sets.count), subject.plan.sample))
    return window(worker, sets, subject.code, shape, "public", subject.seeds.take(calls), sample=sample, limit_s=limit_s)


def _enough(samples: list[float], plan: Plan) -> bool:
    if len(samples) < plan.min_windows:
        return False
    return len(samples) >= plan.max_windows or half_width(samples) < plan.half_width


def _calls(subject: Subject, worker: Worker, shape: Mapping[str, int]) -> int:
    """Calls per window, from a trial window after the solution's first calls are over."""
    plan = subject.plan
    with _buffers(subject, worker, shape, "public", plan.min_calls) as sets:
        for limit_s in (plan.first_call_limit_s, plan.call_limit_s):
            call_s = _run(subject, worker, sets, shape, plan.min_calls, limit_s).elapsed_s / plan.min_calls
        set_bytes = sets.input_layout.set_bytes + sets.output_layout.set_bytes
    wanted = min(round(plan.window_s / call_s), plan.max_calls, plan.sets_bytes // set_bytes)
    return max(wanted, plan.min_calls)


@contextmanager
def _about(shape: Mapping[str, int], mode: str) -> Iterator[None]:
    """A refusal from inside says on which inputs it happened."""
    try:
        yield
    except Refusal as no:
        no.shape, no.mode = no.shape or shape, no.mode or mode
        raise


@contextmanager
def _buffers(subject: Subject, worker: Worker, shape: Mapping[str, int], mode: str, count: int) -> Iterator[Sets]:
    """Shared buffers for `count` sets, made known to the worker."""
    example = subject.code.make_inputs(shape, 0, mode, "cpu")
    input_layout = layout([(tuple(tensor.shape), tensor.dtype) for tensor in example])
    output_layout = layout([(_sizes(tensor, shape), getattr(torch, tensor.dtype)) for tensor in subject.problem.outputs])
    memory = [HostBuffer(each.set_bytes * count) for each in (input_layout, output_layout)]
    sets = Sets(memory[0], memory[1], input_layout, output_layout, count)
    try:
        worker.thaw()
        worker.order("shape", fds=[sets.inputs.fd, sets.outputs.fd], limit_s=subject.plan.call_limit_s, **sets.message())
        yield sets
    finally:
        for buffer in memory:
            buffer.close()


def _sizes(tensor: Tensor, shape: Mapping[str, int]) -> tuple[int, ...]:
    """An output's sizes; its names are the shape's, as the catalogue has checked."""
    return tuple(size if isinstance(size, int) else shape[size] for size in tensor.shape)
