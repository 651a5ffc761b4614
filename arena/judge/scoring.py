"""From a submission to a score: load, check, time, and only then compare with what the hardware could do."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

import arena
from arena.collect import Submission
from arena.errors import ArenaError, JudgeError
from arena.judge import calibrate, code, link, measure, rules
from arena.judge.ceiling import ceiling, geometric_mean
from arena.judge.plan import DEFAULT, Plan
from arena.judge.refusal import Refusal
from arena.judge.statistics import interval, score_of
from arena.judge.window import Seeds
from arena.sandboxes import Sandbox
from arena.schema import Device, Errors, Hardware, Passed, Problem, Profile, Refused, ShapeScore, Timings

Report = Callable[[str], None]
"""Told what the judge is doing, for a person to read."""

THREADS = {"OMP_NUM_THREADS": "1"}
"""A worker on one core gains nothing from more threads, and libraries guess from the machine's core count."""

REVIEW_ABOVE = 0.95
"""Fractions above this are flagged for a person to look at."""


@dataclass
class Clock:
    """Where the time went, by phase."""

    spent_s: dict[str, float] = field(default_factory=lambda: {"build": 0.0, "check": 0.0, "benchmark": 0.0})
    begin_s: float = field(default_factory=time.monotonic)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside the block."""
        begin_s = time.monotonic()
        try:
            yield
        finally:
            self.spent_s[name] += time.monotonic() - begin_s

    def timings(self) -> Timings:
        """The totals so far."""
        rounded = {f"{name}_s": round(seconds, 3) for name, seconds in self.spent_s.items()}
        return Timings(**rounded, total_s=round(time.monotonic() - self.begin_s, 3))


def score(
    submission: Submission,
    problem: Problem,
    hardware: Hardware,
    *,
    digest: str,
    sandbox: Sandbox,
    report: Report = lambda _: None,
    plan: Plan = DEFAULT,
    logs: Path | None = None,
) -> Passed | Refused:
    """Score one submission. Never raises for what the submission does; our own failures become `judge_failed`.

    `digest` is the problem's; `logs` receives each worker's streams.
    """
    clock = Clock()
    seeds = Seeds()
    head: dict[str, Any] = {"problem": problem.name, "problem_digest": digest, "hardware": hardware.name}
    environment = _environment(seeds)
    try:
        _read(submission, problem)
        device = _device(hardware)
        subject = measure.Subject(problem, code.load(problem, hardware.profile), plan, seeds)
        with _cores(hardware) as worker_cpus:
            before = calibrate.copy_gb_s()
            start = partial(link.start, submission, sandbox=sandbox, cpus=worker_cpus, gpu=None, env=THREADS, logs=logs)
            timed = _judge(subject, hardware.profile, start, clock, report)
            environment |= {"anchor_copy_gb_s": f"{before:.1f} before, {calibrate.copy_gb_s():.1f} after"}
        shapes = tuple(_shape_score(subject, device, shape, runs) for shape, runs in timed)
    except Refusal as no:
        told: dict[str, Any] = {"message": no.message, "shape": no.shape, "mode": no.mode, "error": no.error}
        return Refused(**head, **told, verdict=no.verdict, timings=clock.timings(), environment=environment)
    except ArenaError as ours:
        return Refused(**head, verdict="judge_failed", message=str(ours), timings=clock.timings(), environment=environment)
    return Passed(
        **head,
        peak_fraction=geometric_mean(shape.peak_fraction for shape in shapes),
        device=device,
        shapes=shapes,
        review_suggested=any(shape.peak_fraction > REVIEW_ABOVE for shape in shapes),
        timings=clock.timings(),
        environment=environment,
    )


def missing(reason: str, problem: Problem, hardware: Hardware, digest: str) -> Refused:
    """The score of a run that left no usable solution.py."""
    timings = Clock().timings()
    return Refused(
        problem=problem.name, problem_digest=digest, hardware=hardware.name, verdict="missing", message=reason, timings=timings
    )


def _read(submission: Submission, problem: Problem) -> None:
    """What can be refused by reading alone."""
    try:
        found = rules.forbidden(submission.source.decode(), problem.forbidden)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        what = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        raise Refusal("crashed", f"solution.py does not parse: {where}{what}") from None
    if found:
        uses = "; ".join(f"line {use.line} uses {use.name}" for use in found[:5])
        raise Refusal("forbidden", f"The problem forbids what solution.py uses: {uses}")


Timed = list[tuple[Mapping[str, int], list[measure.Timed]]]
Start = Callable[[], AbstractContextManager[link.Worker]]


def _judge(subject: measure.Subject, profile: Profile, start: Start, clock: Clock, report: Report) -> Timed:
    """Check in the first worker, then time every shape in each of the plan's fresh workers."""
    shapes = subject.problem.shapes[profile]
    runs: list[list[measure.Timed]] = [[] for _ in shapes]
    for number in range(1, subject.plan.processes + 1):
        report(f"worker {number} of {subject.plan.processes}: loading solution.py")
        began_s = time.monotonic()
        with start() as worker:
            worker.order("load", limit_s=subject.plan.build_limit_s)
            clock.spent_s["build"] += time.monotonic() - began_s
            if number == 1:
                with clock.phase("check"):
                    _check(subject, worker, profile, report)
            with clock.phase("benchmark"):
                for shape, done in zip(shapes, runs, strict=True):
                    report(f"worker {number} of {subject.plan.processes}: timing {_words(shape)}")
                    done.append(measure.time_shape(subject, worker, shape, done[0].calls if done else None))
    return list(zip(shapes, runs, strict=True))


def _check(subject: measure.Subject, worker: link.Worker, profile: Profile, report: Report) -> None:
    """Every scored and hidden shape, on the public distribution and on every hidden class of inputs."""
    for shape in (*subject.problem.shapes[profile], *subject.code.extra_shapes):
        report(f"checking {_words(shape)}")
        for mode in ("public", *subject.code.modes):
            measure.check(subject, worker, shape, mode)


def _shape_score(subject: measure.Subject, device: Device, shape: Mapping[str, int], runs: list[measure.Timed]) -> ShapeScore:
    least = ceiling(subject.problem.flops(shape), subject.problem.bytes(shape), device, subject.code.rate)
    samples = tuple(run.samples_s for run in runs)
    measured_s = score_of(samples)
    low_s, high_s = interval(samples)
    if measured_s < least.seconds:
        above = f"{_words(shape)}: {measured_s * 1e6:.2f} us is below the {least.seconds * 1e6:.2f} us that the hardware needs"
        if device.ceilings == "measured":
            raise JudgeError(
                f"{above}; the measured ceilings are too low: run `arena calibrate` on an idle machine and score again"
            )
        raise Refusal("cheated", above, shape=shape)
    return ShapeScore(
        shape=dict(shape),
        peak_fraction=least.seconds / measured_s,
        ceiling_s=least.seconds,
        bound=least.bound,
        measured_s=measured_s,
        ci95=(low_s, high_s),
        mode="wall",
        wall_s=measured_s,
        calls_per_window=runs[0].calls,
        windows=sum(len(run.samples_s) for run in runs),
        process_medians_s=tuple(median(run.samples_s) for run in runs),
        samples_s=samples,
        empty_window_s=median(run.empty_s for run in runs),
        error=Errors(**{key: max(getattr(run.error, key) for run in runs) for key in ("rel_fro", "row", "el")}),
    )


def _device(hardware: Hardware) -> Device:
    """The device to score on, and its ceilings; JudgeError when it is not the one asked for."""
    if hardware.profile == "gpu":
        raise JudgeError(f"scoring on {hardware.title} is not built yet; use --hardware cpu")
    found = calibrate.cpu()
    return Device(name=found.device, bandwidth_gb_s=found.bandwidth_gb_s, tflops=found.tflops, ceilings="measured")


@contextmanager
def _cores(hardware: Hardware) -> Iterator[frozenset[int] | None]:
    """The one core a CPU score is taken on: the last, since the first takes most interrupts. The judge keeps off it."""
    if hardware.profile == "gpu":
        yield None
        return
    cpus, threads = os.sched_getaffinity(0), torch.get_num_threads()
    others = cpus - {max(cpus)} or cpus
    os.sched_setaffinity(0, others)
    torch.set_num_threads(len(others))
    try:
        yield frozenset({max(cpus)})
    finally:
        os.sched_setaffinity(0, cpus)
        torch.set_num_threads(threads)


def _environment(seeds: Seeds) -> dict[str, str]:
    return {
        "arena": arena.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "kernel": platform.release(),
        # Drawn for this scoring alone and used up with it; kept so that a person can make the same inputs again.
        "seed": seeds.secret.hex(),
    }


def _words(shape: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in shape.items())
