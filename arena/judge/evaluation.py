"""All steps of one evaluation: check the submission in a first worker, time it in fresh ones, then collect evidence."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from arena.errors import ArenaError
from arena.judge import buffers, building, kernels, timing
from arena.judge.anchor import Anchor
from arena.judge.building import Report, Start
from arena.judge.context import CHECKED_CALLS, ScoringContext, shape_text
from arena.judge.gpu_window import Unqueued
from arena.judge.overhead import Overhead, usual
from arena.judge.problem_code import Shape
from arena.judge.rejection import NotAloneError, Rejection, crowded
from arena.judge.score_math import median_of_processes, trimmed_mean
from arena.judge.verify import worse
from arena.judge.window import WindowSpec
from arena.judge.worker_client import Uncapturable, Worker
from arena.schema import Errors, Evidence, LaunchMode, Profile

LONGEST_WINDOW = 0.25
"""Of the time limit of a window: the longest that one with more calls than before may take, by the calls timed before."""
WITHOUT_GRAPHS = "call by call: the kernels of a window do not fit into the GPU's queue"


class Untimed(Exception):  # noqa: N818  an answer, not an error
    """The submission passed every check that comes before timing, and on a shared device nothing is timed."""

    def __init__(self, error: Errors) -> None:
        super().__init__("passed every check, and was not timed")
        self.error = error
        """The worst seen."""


@dataclass(frozen=True)
class ProcessResult:
    """What one timed worker process gave."""

    shapes: tuple[timing.ShapeTiming, ...]
    """One for each shape that it timed: the scored shapes and, from the first process, the latency shapes."""
    evidence: tuple[Evidence, ...]
    """After its timing; with counters from the last process only."""
    anchors_gb_s: tuple[float, float]
    """The rate of a trusted copy before and after: how steady the device was."""
    dropped: tuple[tuple[float, float], ...] = ()
    """The anchors of processes timed earlier in its place, while the device did not keep its speed."""
    dropped_evidence: tuple[Evidence, ...] = ()
    """Of these: a time of theirs may count."""

    def noting(self, reasons: list[tuple[str, ...]]) -> ProcessResult:
        """With these reasons why each shape was timed again, beside its own."""
        pairs = zip(reasons, self.shapes, strict=True)
        return replace(self, shapes=tuple(replace(timed, disturbed=(*why, *timed.disturbed)) for why, timed in pairs))

    def all_evidence(self) -> tuple[Evidence, ...]:
        """What was seen in this process and in those in whose place it is."""
        return (*self.dropped_evidence, *self.evidence)

    def drift(self) -> float:
        """How far the device's own speed moved meanwhile, relative."""
        before, after = self.anchors_gb_s
        return abs(after / before - 1)


def run(
    context: ScoringContext,
    profile: Profile,
    start: Start,
    anchor: Anchor,
    report: Report,
    *,
    counters: kernels.Counters | None = None,
    shared: bool = False,
) -> list[ProcessResult]:
    """One result for each timed process; Rejection when the submission fails. The worker of `counters` builds with the others.

    On a device that others use too (`shared`), one worker checks the submission and nothing is measured: Untimed when it passes.
    """
    scored, shapes = context.problem.shapes[profile], context.problem.timed(profile)
    checked = (*shapes, *context.code.extra_shapes)
    shapes_by_process = [shapes] + [scored] * (context.sampling.processes - 1)
    unfit: Unqueued | None = None
    with ExitStack() as stack:
        # A machine with a GPU has spare cores: all workers import torch and compile at once, while nothing is timed.
        workers = building.start_workers(context, start, stack) if context.memory.kind == "cuda" and not shared else []

        def prepare(worker: Worker) -> None:
            worker.wait_until_ready(context.memory)
            if not shared:
                buffers.reserve_for(context, worker, _trial_sets(context, checked), hidden=True)

        with building.OwnWorker(start, prepare) as own:
            for shape in checked if workers else ():
                context.room(shape)  # refuses a shape that does not fit, while the workers import torch
            overheads = building.own_parts(context, workers, shapes_by_process)
            prepare(own.worker)
            if shared:
                raise Untimed(_check_one_by_one(context, own.worker, checked, report))
            jobs = [(own, checked), *building.jobs(workers, shapes_by_process)]
            building.build(context, jobs, counters if workers else None, report)
            checker = own.worker
            with context.stopwatch.phase("check"):
                _check(context, checker, checked, report)
            with context.stopwatch.phase("benchmark"):
                specs, uncaptured = _window_specs(context, checker, scored, shapes[len(scored) :])
        if not workers:
            workers, overheads = building.built(context, start, stack, shapes_by_process, counters, report)
        try:
            results = _time_all(context, workers, overheads, start, shapes_by_process, specs, scored, anchor, counters, report)
        except Unqueued as unqueued:
            results, specs, unfit = [], _without_graphs(specs, uncaptured, scored, unqueued), unqueued

    def again(why: str) -> list[ProcessResult]:
        """Time all in fresh workers: those that have loaded the submission may have kernels that lengthen what is measured."""
        nonlocal specs, unfit
        stuck = None if results else unfit
        while True:
            report(f"timing again, {why}")
            if counters:
                counters.restart()
            try:
                # The driver may be taking back the memory of those that ended.
                anchor.settled_gb_s(wait=True)
                with ExitStack() as stack:
                    workers, overheads = building.built(context, start, stack, shapes_by_process, counters, report)
                    return _time_all(
                        context, workers, overheads, start, shapes_by_process, specs, scored, anchor, counters, report
                    )
            except Unqueued as unqueued:
                specs, why, unfit = _without_graphs(specs, uncaptured, scored, unqueued), WITHOUT_GRAPHS, unqueued
                stuck = unqueued
            except (ArenaError, MemoryError, OSError, RuntimeError) as failure:
                if stuck is None or isinstance(failure, NotAloneError):
                    raise
                raise stuck from failure  # what is left of the stuck worker may hold what was needed

    results = results or again(WITHOUT_GRAPHS)
    while (larger := _enlarged(context, scored, specs, results)) != specs:
        earlier = [tuple(why for run in runs_of(results, number) for why in run.disturbed) for number in range(len(shapes))]
        before, specs = specs, larger
        results = again("with more calls in a window")
        notes = [_faster(*pair) for pair in zip(before, specs, strict=True)]
        results[0] = results[0].noting([(*some, *note) for some, note in zip(earlier, notes, strict=True)])
    if unfit:
        results[0] = results[0].noting([(f"timed again, {WITHOUT_GRAPHS}",)] * len(shapes))
    return results


def runs_of(results: list[ProcessResult], number: int) -> list[timing.ShapeTiming]:
    """What each process that timed shape `number` found there."""
    return [result.shapes[number] for result in results if number < len(result.shapes)]


def _time_all(
    context: ScoringContext,
    workers: list[building.OwnWorker],
    overheads: list[list[Overhead]],
    start: Start,
    shapes_by_process: list[tuple[Shape, ...]],
    specs: list[WindowSpec],
    scored: tuple[Shape, ...],
    anchor: Anchor,
    counters: kernels.Counters | None,
    report: Report,
) -> list[ProcessResult]:
    """Time the submission in each of these workers, which have built it for its shapes, one after the other."""

    def evidence(number: int, worker: Worker) -> tuple[Evidence, ...]:
        report("reading which kernels ran")
        last = number == len(workers)
        return kernels.launched_kernels(context, worker, scored, specs[: len(scored)], counters if last else None)

    # Of every process: one that knows its turn, by a clock, would launch an excluded kernel in all others alone.
    with_evidence = context.memory.kind == "cuda" and context.sampling.kernels
    results, usual_overheads = list[ProcessResult](), usual(overheads)
    for number, (own, shapes) in enumerate(zip(workers, shapes_by_process, strict=True), start=1):
        report(f"timing, process {number} of {len(workers)}")
        seen = partial(evidence, number) if with_evidence else None
        arguments = (anchor, shapes, specs[: len(shapes)], len(scored), seen)
        # The usual overheads where others have loaded the submission: its kernels could lengthen what is measured.
        parts = usual_overheads[: len(shapes)] if own.replaced else overheads[number - 1]
        with own:
            result = _time_process(context, own.worker, parts, *arguments)
        for _ in range(context.sampling.repeats):
            if result.drift() <= context.sampling.drift:
                break
            report(f"timing, process {number} of {len(workers)} again: the device did not keep its speed")
            dropped, seen_before = (*result.dropped, result.anchors_gb_s), result.all_evidence()
            with ExitStack() as stack:
                try:
                    another = building.timed_worker(context, start, stack)
                    another.prepare(another.worker)
                    building.build(context, [(another, shapes)], None, report)
                except (Rejection, ArenaError, MemoryError, OSError, RuntimeError) as failure:
                    others = number < len(workers) or counters is not None
                    if isinstance(failure, Rejection) and not (others and crowded(failure)):
                        raise
                    # The others may hold all memory: the result stands.
                    result = result.noting([(f"no other process could be had to time it again: {failure}",)] * len(shapes))
                    break
                parts = usual_overheads[: len(shapes)]
                repeated = _time_process(context, another.worker, parts, *arguments)
                slower = _slower(context, result, repeated)
                result = replace(repeated, shapes=slower, dropped=dropped, dropped_evidence=seen_before)
        results.append(result)
    return results


def _slower(context: ScoringContext, first: ProcessResult, second: ProcessResult) -> tuple[timing.ShapeTiming, ...]:
    """Of each shape's two timings in a process and in the one in its place, the slower where they agree, else the second.

    So a submission that disturbs the device, to have another process timed in the place of a slow one, gains nothing. Where the
    device did not keep its speed the two do not agree.
    """

    def time_s(run: timing.ShapeTiming) -> float:
        among_s = median(run.samples_s(run.overhead.window_s))
        alone = run.alone_samples_s(run.overhead.alone_s[run.launch_mode]) if run.alone_s else ()
        return max(among_s, trimmed_mean(alone)) if alone else among_s

    chosen = []
    for before, after in zip(first.shapes, second.shapes, strict=True):
        slower = before if 1 < time_s(before) / time_s(after) <= 1 + context.sampling.drift else after
        chosen.append(replace(slower, disturbed=(*before.disturbed, *after.disturbed), error=worse(before.error, after.error)))
    return tuple(chosen)


def _without_graphs(
    specs: list[WindowSpec], uncaptured: list[WindowSpec], scored: tuple[Shape, ...], unqueued: Unqueued
) -> list[WindowSpec]:
    """The specs without graphs for the scored shapes, the kernels of one of which did not fit into the queue.

    Raises `unqueued` where they have none. A latency shape's window was tried before. What stalls there later is rejected, so
    that nothing done on those shapes has the scored ones timed again.
    """
    if specs[0].launch_mode == uncaptured[0].launch_mode or unqueued.shape not in scored:
        raise unqueued
    return [
        plain._replace(calls=max(spec.calls, plain.calls)) if number < len(scored) else spec
        for number, (spec, plain) in enumerate(zip(specs, uncaptured, strict=True))
    ]


def _enlarged(
    context: ScoringContext, scored: tuple[Shape, ...], specs: list[WindowSpec], results: list[ProcessResult]
) -> list[WindowSpec]:
    """The specs, with the most calls on all scored shapes where the windows of one hold less than half of those that fill one.

    A slow start would else buy few sets, which stay in a cache. The most, and on all: were they as many as fill a window now,
    calls that grow faster with their number, or when another shape has more, would buy the same again. Fewer only where calls are
    so slow that a window would come near its limit. No shape is timed again for a latency shape.
    """
    calls_s = []
    for number, _ in enumerate(scored):
        runs = runs_of(results, number)
        overhead_s = min(run.overhead.window_s for run in runs)
        calls_s.append(median_of_processes([run.samples_s(overhead_s) for run in runs]))
    pairs = list(zip(scored, specs, calls_s, strict=False))
    if all(context.calls_that_fill(shape, call_s) <= 2 * spec.calls for shape, spec, call_s in pairs):
        return specs
    longest_s = context.sampling.call_limit_s * LONGEST_WINDOW
    enlarged = [
        spec._replace(calls=max(spec.calls, min(context.most_calls(shape), int(longest_s / call_s))))
        for shape, spec, call_s in pairs
    ]
    return [*enlarged, *specs[len(scored) :]]


def _faster(before: WindowSpec, after: WindowSpec) -> tuple[str, ...]:
    text = f"calls were faster than when the judge chose their number: timed again with {after.calls} instead of {before.calls}"
    return () if before.calls == after.calls else (text,)


def _trial_sets(context: ScoringContext, shapes: tuple[Shape, ...]) -> list[tuple[Shape, int]]:
    """The most sets of each shape that are needed before any timing."""
    least = max(context.sampling.min_calls, CHECKED_CALLS)
    return [(shape, min(least, context.room(shape))) for shape in shapes]


def _time_process(
    context: ScoringContext,
    worker: Worker,
    overheads: list[Overhead],
    anchor: Anchor,
    shapes: tuple[Shape, ...],
    specs: list[WindowSpec],
    scored: int,
    evidence: Callable[[Worker], tuple[Evidence, ...]] | None,
) -> ProcessResult:
    """Time every shape in a worker that was built: scored ones first. `evidence` comes last."""
    before_gb_s = anchor.settled_gb_s(wait=True)
    arguments = list(zip(shapes, specs, overheads, strict=True))
    with context.stopwatch.phase("benchmark"):
        buffers.reserve_for(context, worker, [(shape, spec.calls) for shape, spec in zip(shapes, specs, strict=True)])
        timed = [_time(context, worker, *each) for each in arguments[:scored]]
    worker.freeze()
    # Before the worker ends: for some time after that the driver is busy taking its memory back. And before the latency shapes:
    # what a submission does on them cannot have the scored shapes timed again.
    anchors = (before_gb_s, anchor.settled_gb_s(wait=False))
    with context.stopwatch.phase("benchmark"):
        timed += [_time(context, worker, *each) for each in arguments[scored:]]
    with context.stopwatch.phase("evidence"):
        launched = evidence(worker) if evidence else ()
    return ProcessResult(tuple(timed), launched, anchors)


def _check_one_by_one(context: ScoringContext, worker: Worker, shapes: tuple[Shape, ...], report: Report) -> Errors:
    """Build for each shape when its turn comes, the smallest first: most wrong solutions fail on any, and soonest there."""
    worst: Errors = dict.fromkeys(context.problem.tolerance, 0.0)
    if context.memory.kind == "cuda":  # before the submission can hoard the device's memory
        with context.memory.turn():
            buffers.reserve_for(context, worker, [(shape, CHECKED_CALLS) for shape in shapes], hidden=True)
    with context.stopwatch.phase("build"):
        timing.build(context, worker, ())
    for shape in sorted(shapes, key=context.set_bytes):
        with context.stopwatch.phase("build"):
            timing.first_call(context, worker, shape)
        with context.stopwatch.phase("check"), context.memory.turn():
            worst = worse(worst, _check(context, worker, (shape,), report))
    return worst


def _check(context: ScoringContext, worker: Worker, shapes: tuple[Shape, ...], report: Report) -> Errors:
    """The worst errors on timed and hidden shapes, on the public distribution and on every hidden input class."""
    worst: Errors = dict.fromkeys(context.problem.tolerance, 0.0)
    for shape in shapes:
        report(f"checking {shape_text(shape)}")
        for input_class in ("public", *context.code.input_classes):
            worst = worse(worst, timing.check(context, worker, shape, input_class))
    return worst


def _window_specs(
    context: ScoringContext, worker: Worker, scored: tuple[Shape, ...], latency: tuple[Shape, ...]
) -> tuple[list[WindowSpec], list[WindowSpec]]:
    """How each shape is timed: one launch mode for all scored shapes, and one for the latency shapes, which may not capture.

    And how each would be timed without graphs. A failed capture spoils the worker, so this is its last task.
    """

    def specs(launch_mode: LaunchMode, shapes: tuple[Shape, ...]) -> list[WindowSpec]:
        return [WindowSpec(launch_mode, timing.calls_per_window(context, worker, shape, launch_mode)) for shape in shapes]

    plain = timing.plain_mode(context)
    groups = (scored, latency)
    uncaptured = [specs(plain, group) for group in groups]
    found = list(uncaptured)
    if plain != "call":
        try:
            for number, group in enumerate(groups):
                captured = specs("graph", group)
                # Many short calls fill a window of a latency shape, and their kernels may not fit into the queue behind the gate.
                for shape, spec in zip(group, captured, strict=True) if number else ():
                    timing.try_window(context, worker, shape, *spec)
                found[number] = captured
        except (Uncapturable, Rejection) as failure:
            why = f"they cannot be captured in a CUDA graph{failure}"
            if isinstance(failure, Rejection):
                # Right call by call and wrong in a graph: a capture silently leaves out work on the legacy stream, for one. A
                # graph of very many kernels may not fit into the queue behind the gate.
                if failure.verdict not in ("incorrect", "timed_out"):
                    raise
                why = f"in a CUDA graph they were {failure.verdict} ({failure.message})"
            calls = "calls" if found == uncaptured else "calls on latency shapes"
            context.notes.append(f"{calls} are timed one by one: {why}")
    return [*found[0], *found[1]], [*uncaptured[0], *uncaptured[1]]


def _time(context: ScoringContext, worker: Worker, shape: Shape, spec: WindowSpec, overhead: Overhead) -> timing.ShapeTiming:
    try:
        return timing.time_shape(context, worker, shape, *spec, overhead)
    except Uncapturable as uncapturable:
        # The launch mode never changes silently within a score.
        text = f"The calls could be captured in a CUDA graph in one process and not in the next{uncapturable}"
        raise Rejection("crashed", text, shape=shape, input_class="public") from None
