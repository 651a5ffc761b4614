"""From a submission to a score: read, check, time, and only then compare with what the hardware could do."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

import arena
from arena.errors import ArenaError, JudgeError
from arena.judge import evaluation, forbidden, kernels, problem_code, timing, warnings, worker_client
from arena.judge.ceiling import ceiling, geometric_mean
from arena.judge.device.detect import open_device
from arena.judge.rejection import Rejection
from arena.judge.sampling import Sampling
from arena.judge.stats import interval, score_of
from arena.judge.stopwatch import Clock
from arena.judge.verify import worse
from arena.judge.window import Seeds
from arena.sandboxes import Sandbox
from arena.schema import Device, Evidence, Hardware, JudgeFailed, Passed, Problem, Rejected, Score, ShapeScore, TimedShape
from arena.submission import Submission

REVIEW_ABOVE = 0.95
"""Fractions above this are flagged for a person to look at."""
HICCUPS = 1
"""So often a shape may be begun again without such a flag. Who disturbs himself may be choosing his try."""


def score(
    submission: Submission,
    problem: Problem,
    hardware: Hardware,
    *,
    digest: str,
    sandbox: Sandbox,
    report: evaluation.Report = lambda _: None,
    plan: Sampling | None = None,
    logs: Path | None = None,
    gpu: int = 0,
    folder: Path | None = None,
    hidden: bool = True,
    shared: bool = False,
) -> Score:
    """Score one submission. Never raises for what the submission does; our own failures become `judge_failed`.

    `digest` is the problem's; `logs` receives each worker's streams; `plan` replaces the published effort;
    `folder` is the problem's own where it is not among the problems; without `hidden` only public inputs of the scored shapes
    are checked and timed, which is for the speed of a baseline and never for a score. `shared` lets others compute on the GPU
    meanwhile: for what is refused before a clock is read.
    """
    clock, seeds = Clock(), Seeds()
    head: dict[str, Any] = {"problem": problem.name, "problem_digest": digest, "hardware": hardware.name}
    head["tolerance"] = problem.tolerance
    environment = _environment(seeds)
    try:
        _read(submission, problem)
        with open_device(hardware, gpu, shared=shared) as place:
            loaded = problem_code.load(problem, hardware.profile, folder)
            if not hidden:
                loaded, problem = replace(loaded, input_classes=(), extra_shapes=()), problem.model_copy(update={"latency": {}})
            if loaded.rate not in place.device.tflops:
                known = ", ".join(place.device.tflops)
                raise JudgeError(f"{hardware.name} gives no peak for {loaded.rate}, which bounds {problem.name} (known: {known})")
            effort = replace(plan or place.plan, cold_bytes=place.plan.cold_bytes)
            subject = timing.Subject(problem, loaded, place.memory, effort, seeds, clock)
            before = place.conditions()
            start = partial(
                worker_client.start,
                submission,
                sandbox=sandbox,
                cpus=place.cpus,
                gpu=place.gpu,
                env=place.env,
                logs=logs,
                total_limit_s=subject.plan.total_limit_s,
            )
            blocks = evaluation.run(subject, hardware.profile, start, place.anchor_gb_s, report)
            environment |= _changes(before, place.conditions()) | _anchors(blocks)
            timed = [
                _timed(subject, place.device, shape, [block.timed[number] for block in blocks])
                for number, shape in enumerate(problem.timed(hardware.profile))
            ]
            scored = len(problem.shapes[hardware.profile])
            shapes = tuple(ShapeScore(**dict(each), peak_fraction=each.ceiling_s / each.measured_s) for each in timed[:scored])
            evidence = _evidence(subject, blocks[-1].evidence, start, place.counting, report)
    except Rejection as no:
        told: dict[str, Any] = {"message": no.message, "shape": no.shape, "input_class": no.input_class, "error": no.error}
        return Rejected(**head, **told, verdict=no.verdict, timings=clock.timings(), environment=environment)
    except (ArenaError, OSError, MemoryError, RuntimeError) as ours:  # torch says RuntimeError when memory is short
        message = str(ours) or type(ours).__name__  # a MemoryError says nothing
        return JudgeFailed(**head, message=message, timings=clock.timings(), environment=environment)
    unlike = warnings.unlike(problem, shapes, evidence)
    return Passed(
        **head,
        message=unlike,
        peak_fraction=geometric_mean(shape.peak_fraction for shape in shapes),
        device=place.device,
        shapes=shapes,
        latency=tuple(timed[scored:]),
        evidence=evidence,
        review_suggested=any(shape.peak_fraction > REVIEW_ABOVE for shape in shapes)
        or any(block.drift() > subject.plan.drift for block in blocks)
        or any(len(shape.disturbed) > HICCUPS for shape in shapes)
        or any(not each.kernels for each in evidence)
        or bool(unlike),
        timings=clock.timings(),
        environment=environment,
    )


def preflight(hardware: Hardware, gpu: int) -> int | None:
    """The number of the device node to score on, None on a CPU; JudgeError when this machine cannot score on `hardware`."""
    with open_device(hardware, gpu) as place:
        return place.gpu


def missing(reason: str, problem: Problem, hardware: Hardware, digest: str) -> Rejected:
    """The score of a run that left no usable solution.py."""
    return Rejected(
        problem=problem.name,
        problem_digest=digest,
        hardware=hardware.name,
        tolerance=problem.tolerance,
        verdict="missing",
        message=reason,
        timings=Clock().timings(),
    )


def _read(submission: Submission, problem: Problem) -> None:
    """What can be refused by reading alone."""
    try:
        found = forbidden.forbidden(submission.source.decode(), problem.forbidden)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        what = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        raise Rejection("crashed", f"solution.py does not parse: {where}{what}") from None
    if found:
        uses = "; ".join(f"line {use.line} uses {use.name}" for use in found[:5])
        raise Rejection("forbidden", f"The problem forbids what solution.py uses: {uses}")


def _evidence(
    subject: timing.Subject,
    launched: tuple[Evidence, ...],
    start: Callable[..., AbstractContextManager[worker_client.Worker]],
    counting: Callable[[], tuple[str, ...] | str],
    report: evaluation.Report,
) -> tuple[Evidence, ...]:
    """What the calls launched, with the counters where they can be read. Refusal when the rules exclude one of the kernels."""
    for found, name in kernels.excluded(launched, subject.problem.forbidden_kernels):
        raise Rejection(
            "forbidden", f"A call launched {name}, a kernel of a library that the problem excludes", shape=found.shape
        )
    if not (launched and subject.plan.counters):
        return launched
    report("reading the counters")
    with subject.clock.phase("evidence"):
        wrapper = counting()
        if isinstance(wrapper, str):
            return kernels.noted(launched, wrapper)
        return kernels.counted(subject, partial(start, wrapper=wrapper), launched)


def _timed(subject: timing.Subject, device: Device, shape: Mapping[str, int], runs: list[timing.Timed]) -> TimedShape:
    """The runs of one shape, reduced to its time."""
    least = ceiling(subject.problem.flops(shape), subject.problem.bytes(shape), device, subject.code.rate)
    wall_s = score_of([run.wall_s for run in runs])
    samples = tuple(run.samples_s for run in runs)
    # Work that the device's clock did not see, or was told not to see, is in the judge's.
    vetoed = not wall_s - score_of(samples) <= subject.plan.wall_margin * wall_s
    if vetoed:
        samples = tuple(run.wall_s for run in runs)
    measured_s = score_of(samples)
    if not measured_s >= least.seconds:
        _impossible(shape, measured_s, least.seconds, device)
    error = runs[0].error
    for run in runs[1:]:
        error = worse(error, run.error)
    return TimedShape(
        shape=dict(shape),
        ceiling_s=least.seconds,
        bound=least.bound,
        rate=subject.code.rate,
        measured_s=measured_s,
        ci95=interval(samples),
        launch_mode=runs[0].launch_mode,
        vetoed=vetoed,
        wall_s=wall_s,
        calls_per_window=runs[0].calls,
        windows=sum(len(run.samples_s) for run in runs),
        process_medians_s=tuple(median(run) for run in samples),
        samples_s=samples,
        disturbed=tuple(why for run in runs for why in run.disturbed),
        error=error,
    )


def _impossible(shape: Mapping[str, int], measured_s: float, ceiling_s: float, device: Device) -> None:
    """A call faster than the hardware: somebody cheats, or a ceiling that we measured ourselves is too low."""
    us = 1e6
    text = f"{evaluation.words(shape)}: {measured_s * us:.2f} us is below the {ceiling_s * us:.2f} us that the hardware needs"
    if device.ceilings == "measured":
        raise JudgeError(f"{text}; run `arena calibrate --hardware cpu` on an idle machine and score again")
    raise Rejection("cheated", text, shape=shape)


def _anchors(blocks: list[evaluation.Block]) -> dict[str, str]:
    """How fast a trusted copy ran before and after each timed process, those that were timed again included."""
    words = [
        "; ".join(
            [*(f"({before:.0f} {after:.0f})" for before, after in block.dropped), "{:.0f} {:.0f}".format(*block.anchors_gb_s)]
        )
        for block in blocks
    ]
    return {"anchor_copy_gb_s": "; ".join(words)}


def _environment(seeds: Seeds) -> dict[str, str]:
    return {
        "arena": arena.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "kernel": platform.release(),
        # Drawn for this scoring alone and used up with it; kept so that a person can make the same inputs again.
        "seed": seeds.secret.hex(),
    }


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The device's state before and after, in one entry each where nothing changed."""
    return {
        name: value if value == after.get(name) else f"{value} before, {after.get(name)} after" for name, value in before.items()
    }
