"""From a submission to a score: read, check, time, and only then compare with the hardware's ceilings."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

import arena
from arena.errors import ArenaError, JudgeError, message_of
from arena.judge import anchor, evaluation, kernels, problem_code, reading, similar, timing, worker_client
from arena.judge.building import Report
from arena.judge.context import SHORTEST_CALL_S, ScoringContext, Stopwatch, shape_text
from arena.judge.device import nvml
from arena.judge.device.detect import open_device
from arena.judge.device.device import OpenDevice
from arena.judge.problem_code import Shape
from arena.judge.rejection import SHORT_ON_GPU, NotAloneError, Rejection, refusal_under_way
from arena.judge.sampling import Sampling
from arena.judge.score_math import Middle, interval, interval_of_larger, median_of_processes, peak_fraction, trimmed_mean
from arena.judge.sets import Seeds
from arena.judge.verify import worse
from arena.sandboxes import Sandbox
from arena.schema import Device, Evidence, Hardware, JudgeFailed, Passed, Problem, Rejected, Score, ShapeScore, TimedShape
from arena.schema.score import REVIEW_SHARE
from arena.submission import Submission
from arena.system import load

REVIEW_ABOVE = 0.95
"""Fractions above this are flagged for a person to look at."""
MOST_RETRIES = 1
"""A shape retried more often, and more processes timed again, are flagged, too: a submission that disturbs itself, or the device,
may be choosing its try."""
TAKEN_BYTES = 1 << 30
"""The least memory of a GPU that another user's process must hold for a shortage to be its doing: two contexts' worth."""
LEAST_SHARE, TRACES = 0.99, 0.01
"""Share of the formula's operations that the counters must show in the problem's arithmetic, and may show in an excluded one."""


def score(
    submission: Submission,
    problem: Problem,
    hardware: Hardware,
    *,
    digest: str,
    sandbox: Sandbox,
    report: Report = lambda _: None,
    sampling: Sampling | None = None,
    logs: Path | None = None,
    gpu: int = 0,
    folder: Path | None = None,
    hidden: bool = True,
    shared: bool = False,
    packages: tuple[str, ...] = (),
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
        shared: lets others compute on the device meanwhile, so that nothing is timed: `evaluation.Untimed` is raised where the
            submission passes its checks.
        packages: distributions that the worker may import beside those of every worker: for a baseline.
    """
    stopwatch, seeds = Stopwatch(), Seeds()
    common = _common(problem, hardware, digest)
    environment = {"arena": arena.__version__, "python": platform.python_version(), "torch": torch.__version__}
    # The seed is drawn for this scoring alone and never used again; recorded so that a person can make the same inputs.
    environment |= {"kernel": platform.release(), "seed": seeds.secret.hex()}
    notes: list[str] = []
    try:
        read = reading.read(submission.source, problem.forbidden)
        _reject_uses(read.uses)
        loads = {} if shared else {"before": load.look()}
        with open_device(hardware, gpu, shared=shared) as device:
            code = problem_code.load(problem, hardware.profile, folder)
            if not hidden:
                code, problem = replace(code, input_classes=(), extra_shapes=()), problem.model_copy(update={"latency": {}})
            if reason := problem_code.lacking(problem, code.rate, hardware, device.record.tflops):
                raise JudgeError(reason)
            published = device.sampling
            sampling = replace(sampling or published, cold_bytes=published.cold_bytes)
            given = (device.record, device.memory, sampling, seeds, stopwatch, notes, device.strangers)
            context = ScoringContext(problem, code, *given)
            before, idle_gb_s = device.conditions(), _idle_gb_s(device, shared=shared)
            start = partial(worker_client.start, submission, sandbox=sandbox, logs=logs, total_limit_s=sampling.total_limit_s)
            start = partial(start, cpus=device.cpus, gpu=device.gpu, env=device.env, note=notes.append)
            start = partial(start, absent=problem.absent_libraries, packages=packages)
            with ExitStack() as stack:
                # It starts and builds with the other workers, and reads the counters after the last one is timed.
                reads = sampling.kernels and sampling.counters and hardware.profile == "gpu" and not shared
                counters = stack.enter_context(kernels.counters(context, start)) if reads else None
                throttled = set[str]()
                beside = anchor.Anchor(partial(_watched, device, throttled), sampling.drift, idle_gb_s)
                try:
                    processes = evaluation.run(context, hardware.profile, start, beside, report, counters=counters, shared=shared)
                except Rejection as rejection:
                    _require_alone(rejection, () if shared else device.strangers(TAKEN_BYTES))
                    raise
                evidence, seen = processes[-1].evidence, [each for process in processes for each in process.all_evidence()]
                notes += dict.fromkeys(each.note for each in seen if each.note and each not in evidence)
                _reject_excluded(problem, seen)
            environment |= _changes(before, device.conditions()) | _anchors(processes)
            if throttled:
                environment["throttle"] = ", ".join(sorted(throttled))
            timed = [
                _timed(context, shape, evaluation.runs_of(processes, number))
                for number, shape in enumerate(problem.timed(hardware.profile))
            ]
            scored = len(problem.shapes[hardware.profile])
            shapes = tuple(ShapeScore(**dict(each), peak_fraction=each.ceiling_s / each.measured_s) for each in timed[:scored])
        calls_s = [shape.measured_s for shape in shapes]
        counters_hidden = counters is not None and counters.available and bool(evidence) and kernels.hidden(evidence, calls_s)
        environment |= _busy(loads | {"after": load.look()})
    except Rejection as rejection:
        return _rejected(rejection, notes, timings=stopwatch.timings(), environment=environment, **common)
    except (ArenaError, OSError, MemoryError, RuntimeError) as failure:  # torch raises RuntimeError when memory is short
        message = message_of(failure)
        if refusal := refusal_under_way(failure):
            return _rejected(refusal, [*notes, message], timings=stopwatch.timings(), environment=environment, **common)
        return JudgeFailed(**common, message=message, timings=stopwatch.timings(), environment=environment | _noted(notes))
    warning = unexpected_arithmetic(problem, shapes, evidence)
    held = similar.similar(read.fingerprints)
    return Passed(
        **common,
        message=warning,
        peak_fraction=peak_fraction(shape.peak_fraction for shape in shapes),
        device=device.record,
        shapes=shapes,
        latency=tuple(timed[scored:]),
        evidence=evidence,
        similar=held,
        unsteady=any(shape.unsteady for shape in shapes) or bool(throttled),
        brief=sampling.briefer(published),
        review_suggested=any(shape.unsteady or shape.peak_fraction > REVIEW_ABOVE for shape in shapes)
        or any(process.drift() > context.sampling.drift for process in processes)
        or sum(len(process.dropped) for process in processes) > MOST_RETRIES
        or any(len(shape.disturbed) > MOST_RETRIES for shape in shapes)
        or any(shape.overlapped() for shape in shapes)
        or any(not each.kernels or kernels.AMBIGUOUS in each.note for each in seen)
        or counters_hidden
        or any(each.share >= REVIEW_SHARE for each in held)
        or bool(throttled)
        or bool(warning),
        timings=stopwatch.timings(),
        environment=environment | _noted(notes),
    )


def _require_alone(rejection: Rejection, pids: Sequence[int]) -> None:
    """NotAloneError where the GPU's memory was short for the submission, and these processes of others have much of it."""
    if pids and rejection.verdict == "crashed" and SHORT_ON_GPU.search(rejection.message):
        raise NotAloneError(pids, rejection.message) from None


def _idle_gb_s(device: OpenDevice, *, shared: bool) -> float:
    """The trusted copy's rate on a GPU while no worker has started. What slows the GPU down now is no matter of this score."""
    if device.memory.kind == "host" or shared:
        return 0.0
    try:
        return anchor.fastest_gb_s(device.anchor_gb_s)
    except Rejection:
        text = "before any worker started, the GPU did not end a copy of the judge's"
        raise JudgeError(f"{text}: a kernel of another program may hold it; end that or choose another GPU") from None


def _watched(device: OpenDevice, throttled: set[str]) -> float:
    """The trusted copy's rate. Beside it, why the driver slows the device down goes to `throttled`: a copy need not show it."""
    rate_gb_s, reasons = device.anchor_gb_s(), device.conditions().get("throttle", nvml.UNKNOWN)
    throttled |= {reasons} - {nvml.NOT_THROTTLED, nvml.UNKNOWN}
    return rate_gb_s


def _rejected(rejection: Rejection, notes: Sequence[str], *, environment: Mapping[str, str], **common: Any) -> Rejected:  # noqa: ANN401
    """The record of a rejection. Trouble in cleaning up stands beside it."""
    place: dict[str, Any] = {"shape": rejection.shape, "input_class": rejection.input_class, "error": rejection.error}
    return Rejected(
        **common, **place, verdict=rejection.verdict, message=rejection.message, environment={**environment, **_noted(notes)}
    )


def _noted(notes: Sequence[str]) -> dict[str, str]:
    """The field of `environment` for what went otherwise than usual, besides the verdict."""
    return {"notes": "; ".join(notes)} if notes else {}


def _busy(loads: Mapping[str, load.Load]) -> dict[str, str]:
    """The field of `environment` for a machine that others used; without the names of their processes, for it is published."""
    found = [f"{found.share()} {when} the score" for when, found in loads.items() if found.busy]
    return {"busy": "; ".join(found)} if found else {}


def _common(problem: Problem, hardware: Hardware, digest: str) -> dict[str, Any]:
    """What every score records."""
    named = {"problem": problem.name, "problem_digest": digest, "hardware": hardware.name}
    return {**named, "tolerance": problem.tolerance}


def _reject_uses(uses: Sequence[tuple[str, int]]) -> None:
    """Rejection where the source uses a name that the problem forbids."""
    if uses:
        listed = "; ".join(f"line {line} uses {name}" for name, line in uses)
        raise Rejection("forbidden", f"The problem forbids what solution.py uses: {listed}")


def _reject_excluded(problem: Problem, found: Sequence[Evidence]) -> None:
    """Rejection where a call launched a kernel, or used an arithmetic, that the problem's rules exclude."""
    for evidence, name in kernels.excluded_kernels(found, problem.forbidden_kernels):
        text = f"A call launched {name}, a kernel of a library that the problem excludes"
        raise Rejection("forbidden", text, shape=evidence.shape)
    for evidence in found:
        if text := excluded_arithmetic(problem, evidence):
            raise Rejection("forbidden", text, shape=evidence.shape)


def _timed(context: ScoringContext, shape: Shape, runs: list[timing.ShapeTiming]) -> TimedShape:
    """The timings of one shape by all processes, reduced to its time."""
    least = context.ceiling(shape)
    # The least of the processes' overheads: what disturbs a machine lengthens it.
    overhead_s = min(run.overhead.window_s for run in runs)
    among = tuple(run.samples_s(overhead_s) for run in runs)
    among_s, alone_s, alone, alone_overheads_s = median_of_processes(among), None, tuple[tuple[float, ...], ...](), [0.0]
    if runs[0].alone_s:
        # Each process's own, measured before any process loaded the submission: how long the GPU takes to change between the
        # judge's context and a worker's differs by some microseconds from process to process, in both alike.
        alone_overheads_s = [run.overhead.alone_s[run.launch_mode] for run in runs]
        alone = tuple(run.alone_samples_s(each_s) for run, each_s in zip(runs, alone_overheads_s, strict=True))
        alone_s = median_of_processes(alone, trimmed_mean)
    if not among_s >= least.seconds:
        _reject_impossible(shape, among_s, least.seconds, context.device)
    # The larger time counts: a call alone finds nothing that the calls beside it did.
    of_windows, margin_s = _spread(among, median), None
    counted, bounded = of_windows, [(of_windows, 0.0)]
    if alone_s is not None:
        margin_s = context.sampling.margin_s(alone_s, runs[0].launch_mode)
        shorter = [[max(each_s - margin_s, SHORTEST_CALL_S) for each_s in run] for run in alone]
        of_calls = _spread(shorter, trimmed_mean)
        counted = max(of_windows, of_calls, key=lambda spread: spread["measured_s"])
        larger = _larger(of_windows, of_calls, interval_of_larger(among, shorter))
        bounded.append((larger, context.sampling.steady_apart_s))
    error = runs[0].error
    for run in runs[1:]:
        error = worse(error, run.error)
    timed = TimedShape(
        shape=dict(shape),
        ceiling_s=least.seconds,
        bound=least.bound,
        rate=context.code.rate,
        flops=context.problem.flops(shape),
        bytes=context.problem.bytes(shape),
        **counted,
        launch_mode=runs[0].launch_mode,
        overhead_s=max(overhead_s, 0.0),
        among_s=among_s,
        alone_s=alone_s,
        alone_margin_s=margin_s,
        alone_overhead_s=max(median(alone_overheads_s), 0.0) if alone_s is not None else None,
        calls_per_window=runs[0].calls,
        windows=sum(len(run.windows_s) for run in runs),
        samples_s=among,
        alone_samples_s=alone,
        disturbed=tuple(why for run in runs for why in run.disturbed),
        error=error,
    )
    # The time among others by itself, too: a submission whose windows scatter below its time alone would else have no mark.
    unsteady = any(_unsteady(timed.model_copy(update=spread), context.sampling, room_s) for spread, room_s in bounded)
    return timed.model_copy(update={"unsteady": unsteady})


def _spread(samples: Sequence[Sequence[float]], middle: Middle) -> dict[str, Any]:
    """The time that these samples of all processes give, and how far they lie apart."""
    return {
        "measured_s": median_of_processes(samples, middle),
        "ci95": interval(samples, middle),
        "process_medians_s": tuple(middle(run) for run in samples),
    }


def _larger(of_windows: dict[str, Any], of_calls: dict[str, Any], ci95: tuple[float, float]) -> dict[str, Any]:
    """How far the larger of the two times may lie off in another score. In each process the larger one is compared.

    The lesser time cuts the interval off on one side. So both sides are as wide as the wider.
    """
    measured_s = max(of_windows["measured_s"], of_calls["measured_s"])
    wide_s = max(measured_s - ci95[0], ci95[1] - measured_s)
    medians_s = tuple(map(max, zip(of_windows["process_medians_s"], of_calls["process_medians_s"], strict=True)))
    return {"measured_s": measured_s, "ci95": (measured_s - wide_s, measured_s + wide_s), "process_medians_s": medians_s}


def _unsteady(shape: TimedShape, sampling: Sampling, room_s: float = 0.0) -> bool:
    """Whether the shape's time would come out otherwise another time, by more than the published bounds.

    Processes may lie `room_s` apart in any case.
    """
    apart = max(sampling.steady_apart, room_s / shape.measured_s)
    return shape.half_width() > sampling.steady_half_width or shape.apart() > apart


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
        ops = seen.tensor_ops if seen.proof == "counters" else None
        if ops is None or shape.bound != "compute" or ops.get(wanted, 0.0) >= LEAST_SHARE * flops:
            continue
        shares = ", ".join(f"{dtype} {count / flops:.2f}" for dtype, count in sorted(ops.items())) or "nothing"
        found.append(f"{shape_text(shape.shape)} ({shares} of the work)")
    return f"not {wanted}: the tensor cores multiplied otherwise on {'; '.join(found)}" if found else ""


def excluded_arithmetic(problem: Problem, evidence: Evidence) -> str:
    """What the tensor cores multiplied though the problem excludes it; empty where the counters show traces of it at most."""
    flops, ops = problem.flops(evidence.shape), evidence.tensor_ops or {}
    seen = [dtype for dtype in problem.excluded_arithmetic if ops.get(dtype, 0.0) > TRACES * flops]
    counts = ", ".join(f"{dtype} numbers ({ops[dtype]:.3g} operations)" for dtype in seen)
    return f"The tensor cores multiplied {counts}, which the problem excludes" if seen else ""


def _reject_impossible(shape: Shape, measured_s: float, ceiling_s: float, device: Device) -> None:
    """A call faster than the hardware: the submission cheats, or a time that arena measured is wrong."""
    text = f"{shape_text(shape)}: {measured_s * 1e6:.2f} us, but the hardware needs {ceiling_s * 1e6:.2f} us"
    if device.ceilings == "measured":
        remedy = "if it stays so, `arena calibrate --hardware cpu` measures the ceilings again"
        raise JudgeError(f"{text}; score again when nothing else uses this machine, and {remedy}")
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
