"""From a submission to a score: read, check, time, and only then compare with the hardware's ceilings."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

import arena
from arena.errors import ArenaError, JudgeError
from arena.judge import evaluation, forbidden, kernels, problem_code, timing, worker_client
from arena.judge.device.detect import open_device
from arena.judge.problem_code import Shape
from arena.judge.rejection import Rejection
from arena.judge.sampling import Sampling
from arena.judge.score_math import ceiling, interval, median_of_medians, peak_fraction
from arena.judge.verify import worse
from arena.judge.window import Seeds
from arena.sandboxes import Sandbox
from arena.schema import Device, Evidence, Hardware, JudgeFailed, Passed, Problem, Rejected, Score, ShapeScore, TimedShape
from arena.submission import Submission

REVIEW_ABOVE = 0.95
"""Fractions above this are flagged for a person to look at."""
MOST_RETRIES = 1
"""A shape retried more often is flagged, too: a submission that disturbs itself may be choosing its try."""
LEAST_SHARE = 0.99
"""Share of the formula's operations that the counters must show in the problem's arithmetic."""


def score(
    submission: Submission,
    problem: Problem,
    hardware: Hardware,
    *,
    digest: str,
    sandbox: Sandbox,
    report: evaluation.Report = lambda _: None,
    sampling: Sampling | None = None,
    logs: Path | None = None,
    gpu: int = 0,
    folder: Path | None = None,
    hidden: bool = True,
    shared: bool = False,
) -> Score:
    """Score one submission. Never raises for what the submission does; failures of arena or the machine become `judge_failed`.

    Args:
        digest: the problem's digest, for the record.
        report: receives a line on each step.
        sampling: replaces the published effort.
        logs: folder that receives each worker's streams.
        gpu: number of the GPU, as CUDA counts.
        folder: the problem's folder, where it is not in problems/.
        hidden: False checks and times only public inputs of the scored shapes: for a baseline's speed, never for a score.
        shared: lets other processes compute on the GPU meanwhile: for submissions rejected before any timing.
    """
    stopwatch, seeds = timing.Stopwatch(), Seeds()
    common = _common(problem, hardware, digest)
    environment = {"arena": arena.__version__, "python": platform.python_version(), "torch": torch.__version__}
    # The seed is drawn for this scoring alone and never used again; recorded so that a person can make the same inputs.
    environment |= {"kernel": platform.release(), "seed": seeds.secret.hex()}
    try:
        _read(submission, problem)
        with open_device(hardware, gpu, shared=shared) as device:
            code = problem_code.load(problem, hardware.profile, folder)
            if not hidden:
                code, problem = replace(code, input_classes=(), extra_shapes=()), problem.model_copy(update={"latency": {}})
            if code.rate not in device.record.tflops:
                known = ", ".join(device.record.tflops)
                raise JudgeError(f"{hardware.name} gives no peak for {code.rate}, which bounds {problem.name} (known: {known})")
            sampling = replace(sampling or device.sampling, cold_bytes=device.sampling.cold_bytes)
            context = timing.ScoringContext(problem, code, device.memory, sampling, seeds, stopwatch)
            before = device.conditions()
            start = partial(worker_client.start, submission, sandbox=sandbox, logs=logs, total_limit_s=sampling.total_limit_s)
            start = partial(start, cpus=device.cpus, gpu=device.gpu, env=device.env)
            processes = evaluation.run(context, hardware.profile, start, device.anchor_gb_s, report)
            environment |= _changes(before, device.conditions()) | _anchors(processes)
            timed = [
                _timed(context, device.record, shape, [process.shapes[number] for process in processes])
                for number, shape in enumerate(problem.timed(hardware.profile))
            ]
            scored = len(problem.shapes[hardware.profile])
            shapes = tuple(ShapeScore(**dict(each), peak_fraction=each.ceiling_s / each.measured_s) for each in timed[:scored])
            evidence = _evidence(context, processes[-1].evidence, start, report)
    except Rejection as rejection:
        common |= {"message": rejection.message, "shape": rejection.shape, "input_class": rejection.input_class}
        common |= {"error": rejection.error, "timings": stopwatch.timings(), "environment": environment}
        return Rejected(**common, verdict=rejection.verdict)
    except (ArenaError, OSError, MemoryError, RuntimeError) as failure:  # torch raises RuntimeError when memory is short
        message = str(failure) or type(failure).__name__  # a MemoryError has no text
        return JudgeFailed(**common, message=message, timings=stopwatch.timings(), environment=environment)
    warning = unexpected_arithmetic(problem, shapes, evidence)
    return Passed(
        **common,
        message=warning,
        peak_fraction=peak_fraction(shape.peak_fraction for shape in shapes),
        device=device.record,
        shapes=shapes,
        latency=tuple(timed[scored:]),
        evidence=evidence,
        review_suggested=any(shape.peak_fraction > REVIEW_ABOVE for shape in shapes)
        or any(process.drift() > context.sampling.drift for process in processes)
        or any(len(shape.disturbed) > MOST_RETRIES for shape in shapes)
        or any(not each.kernels for each in evidence)
        or bool(warning),
        timings=stopwatch.timings(),
        environment=environment,
    )


def preflight(hardware: Hardware, gpu: int) -> int | None:
    """The number of the GPU's device node, None on a CPU; JudgeError when this machine cannot score on `hardware`."""
    with open_device(hardware, gpu) as device:
        return device.gpu


def missing(reason: str, problem: Problem, hardware: Hardware, digest: str) -> Rejected:
    """The score of a run that left no usable solution.py."""
    common = _common(problem, hardware, digest)
    return Rejected(**common, verdict="missing", message=reason, timings=timing.Stopwatch().timings())


def _common(problem: Problem, hardware: Hardware, digest: str) -> dict[str, Any]:
    """What every score records."""
    named = {"problem": problem.name, "problem_digest": digest, "hardware": hardware.name}
    return {**named, "tolerance": problem.tolerance}


def _read(submission: Submission, problem: Problem) -> None:
    """Reject what reading the source alone shows."""
    try:
        uses = forbidden.forbidden(submission.source.decode(), problem.forbidden)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        raise Rejection("crashed", f"solution.py does not parse: {line}{reason}") from None
    if uses:
        listed = "; ".join(f"line {use.line} uses {use.name}" for use in uses[:5])
        raise Rejection("forbidden", f"The problem forbids what solution.py uses: {listed}")


def _evidence(
    context: timing.ScoringContext,
    launched: tuple[Evidence, ...],
    start: Callable[..., AbstractContextManager[worker_client.Worker]],
    report: evaluation.Report,
) -> tuple[Evidence, ...]:
    """The kernels that the calls launched, with counters where readable. Rejection for a kernel that the rules exclude."""
    for evidence, name in kernels.excluded_kernels(launched, context.problem.forbidden_kernels):
        text = f"A call launched {name}, a kernel of a library that the problem excludes"
        raise Rejection("forbidden", text, shape=evidence.shape)
    if not (launched and context.sampling.counters):
        return launched
    report("reading the counters")
    with context.stopwatch.phase("evidence"):
        wrapper = kernels.counters_command()
        if isinstance(wrapper, str):
            return kernels.with_note(launched, wrapper)
        return kernels.with_counters(context, partial(start, wrapper=wrapper), launched)


def _timed(context: timing.ScoringContext, device: Device, shape: Shape, runs: list[timing.ShapeTiming]) -> TimedShape:
    """The timings of one shape by all processes, reduced to its time."""
    least = ceiling(context.problem.flops(shape), context.problem.bytes(shape), device, context.code.rate)
    wall_s = median_of_medians([run.wall_s for run in runs])
    samples = tuple(run.samples_s for run in runs)
    # Work that the device's clock missed, or was made to miss, shows on the judge's clock.
    vetoed = not wall_s - median_of_medians(samples) <= context.sampling.wall_margin * wall_s
    if vetoed:
        samples = tuple(run.wall_s for run in runs)
    measured_s = median_of_medians(samples)
    if not measured_s >= least.seconds:
        _reject_impossible(shape, measured_s, least.seconds, device)
    error = runs[0].error
    for run in runs[1:]:
        error = worse(error, run.error)
    return TimedShape(
        shape=dict(shape),
        ceiling_s=least.seconds,
        bound=least.bound,
        rate=context.code.rate,
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


def unexpected_arithmetic(problem: Problem, shapes: Sequence[ShapeScore], evidence: tuple[Evidence, ...]) -> str:
    """The shapes on which the counters show another arithmetic than the problem's; empty where there are none or no counters.

    A wider type may pass the correctness check, being more exact. It lowers the score, and earns this warning.
    """
    wanted = problem.arithmetic
    if wanted is None:
        return ""
    found = []
    for shape, seen in zip(shapes, evidence, strict=False):
        flops = problem.flops(shape.shape)
        if seen.proof != "counters" or shape.bound != "compute" or seen.tensor_ops.get(wanted, 0.0) >= LEAST_SHARE * flops:
            continue
        shares = ", ".join(f"{dtype} {ops / flops:.2f}" for dtype, ops in sorted(seen.tensor_ops.items())) or "nothing"
        found.append(f"{evaluation.shape_text(shape.shape)} ({shares} of the work)")
    return f"not {wanted}: the tensor cores multiplied otherwise on {'; '.join(found)}" if found else ""


def _reject_impossible(shape: Shape, measured_s: float, ceiling_s: float, device: Device) -> None:
    """A call faster than the hardware: the submission cheats, or a ceiling measured on this machine is too low."""
    text = f"{evaluation.shape_text(shape)}: {measured_s * 1e6:.2f} us, but the hardware needs {ceiling_s * 1e6:.2f} us"
    if device.ceilings == "measured":
        raise JudgeError(f"{text}; run `arena calibrate --hardware cpu` on an idle machine and score again")
    raise Rejection("cheated", text, shape=shape)


def _anchors(processes: list[evaluation.ProcessResult]) -> dict[str, str]:
    """How fast a trusted copy ran before and after each timed process; in brackets for processes that were timed again."""
    pairs = []
    for process in processes:
        pairs += [f"({before:.0f} {after:.0f})" for before, after in process.dropped]
        pairs.append("{:.0f} {:.0f}".format(*process.anchors_gb_s))
    return {"anchor_copy_gb_s": "; ".join(pairs)}


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The device's state before and after: one value where nothing changed, both where something did."""
    return {
        name: value if value == after.get(name) else f"{value} before, {after.get(name)} after" for name, value in before.items()
    }
