"""Workers that build a submission: started together, measured while they have none, and built at once where there is room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager

from arena.errors import ArenaError
from arena.judge import buffers, kernels, timing
from arena.judge.context import ScoringContext
from arena.judge.overhead import Overhead, measure_overhead
from arena.judge.problem_code import Shape
from arena.judge.rejection import Rejection, crowded
from arena.judge.worker_client import Worker, as_judge_failure

Report = Callable[[str], None]
"""Receives a line on what the judge is doing, for a person to read."""
Start = Callable[[], AbstractContextManager[Worker]]
"""Starts a fresh worker with the submission."""
TimedWorker = tuple[ExitStack, Worker]
"""A stack whose end is the worker's, and a worker to be timed."""
Job = tuple[Worker, tuple[Shape, ...]]
"""A worker, and the shapes that it is to build for."""
Failure = Rejection | MemoryError | OSError | RuntimeError
"""Of a worker, or of the judge beside it: torch raises RuntimeError when memory is short."""
COUNTERS_REST_S = 120.0
"""How long the counters' worker may build when all others have built."""


def built(
    context: ScoringContext,
    start: Start,
    stack: ExitStack,
    shapes_by_process: list[tuple[Shape, ...]],
    counters: kernels.Counters | None,
    report: Report,
) -> tuple[list[TimedWorker], list[list[Overhead]]]:
    """Fresh workers that have built the submission, each for its shapes, and the judge's own part of the windows in each."""
    workers = start_workers(context, start, stack)
    overheads = own_parts(context, workers, shapes_by_process)
    build(context, jobs(workers, shapes_by_process), counters, report)
    return workers, overheads


def start_workers(context: ScoringContext, start: Start, stack: ExitStack) -> list[TimedWorker]:
    """The workers to be timed, started together, since none has the submission yet; leaving its own stack ends each."""
    workers = list[TimedWorker]()
    for _ in range(context.sampling.processes):
        worker_stack = stack.enter_context(ExitStack())
        workers.append((worker_stack, worker_stack.enter_context(start())))
    return workers


def jobs(workers: list[TimedWorker], shapes_by_process: list[tuple[Shape, ...]]) -> list[Job]:
    """What each of these workers is to build. None may have been started."""
    return [(worker, shapes) for (_, worker), shapes in zip(workers, shapes_by_process, strict=True)] if workers else []


def own_parts(
    context: ScoringContext, workers: list[TimedWorker], shapes_by_process: list[tuple[Shape, ...]]
) -> list[list[Overhead]]:
    """For each worker, the judge's own part of the windows of its shapes."""
    return [own_part(context, *job) for job in jobs(workers, shapes_by_process)]


def own_part(context: ScoringContext, worker: Worker, shapes: tuple[Shape, ...]) -> list[Overhead]:
    """The judge's own part of every shape's windows, in a worker without the submission."""
    worker.wait_until_ready(context.memory)
    with context.stopwatch.phase("benchmark"), as_judge_failure():
        buffers.reserve_for(context, worker, [(shape, context.most_calls(shape)) for shape in shapes])
        found = [measure_overhead(context, worker, shape) for shape in shapes]
        buffers.release(context, worker)  # the next worker needs the memory
        context.memory.release_staging()
    return found


def build(context: ScoringContext, to_build: list[Job], counters: kernels.Counters | None, report: Report) -> None:
    """Load the submission in each worker and call it once on each of its shapes, which may compile. Stop them afterwards.

    On a GPU all do so at once, and memory may be too short for that. Those that fail then build once more, one after the other.
    """
    report("building")
    at_once = len(to_build) + 1 if context.memory.kind == "cuda" else 1  # workers on a CPU share one core
    threads = ThreadPoolExecutor(at_once, initializer=context.memory.use_in_thread)
    failed = list[tuple[Job, Failure]]()
    with context.stopwatch.phase("build"), threads as pool:
        try:
            counting = pool.submit(counters.build, context.problem.shapes["gpu"]) if counters else None
            for job, done in [(job, pool.submit(timing.build, context, *job)) for job in to_build]:
                try:
                    done.result()
                except (Rejection, MemoryError, OSError, RuntimeError) as failure:
                    if at_once == 1 or not crowded(failure):
                        raise
                    failed.append((job, failure))
            _await_counters(counters, counting)
            if failed:
                short = f"{len(failed)} of {len(to_build)} workers at once reported that memory was short"
                report(f"building again, one after the other: {short}")
                context.notes.append(f"builds were repeated, one after the other: {short}")
                _build_alone(context, failed)
            if counters and counters.crowded:
                context.notes.append("the build of the counters' worker was repeated: it reported that memory was short")
                counters.restart()
                _await_counters(counters, pool.submit(counters.build, context.problem.shapes["gpu"]))
        except BaseException:  # one failed, or Ctrl-C: the threads of the others wait for compilers, which end now
            for worker, _ in to_build:
                worker.begin_kill()
            if counters:
                counters.begin_kill()
            raise


def _build_alone(context: ScoringContext, failed: list[tuple[Job, Failure]]) -> None:
    """Build again where it failed, with all others stopped. What fails now is the submission's own: the first verdict stands."""
    for (worker, _), failure in failed:
        with _standing(failure):
            worker.order("trim", limit_s=context.sampling.call_limit_s)
            worker.set_aside()
    for job, failure in failed:
        with _standing(failure):
            timing.build(context, *job)


@contextmanager
def _standing(failure: Failure) -> Iterator[None]:
    """Raise the verdict that this failure was in the place of whatever fails later: no verdict becomes a failure of the judge."""
    try:
        yield
    except (Rejection, ArenaError, MemoryError, OSError, RuntimeError):
        if isinstance(failure, Rejection):
            raise failure from None
        raise


def _await_counters(counters: kernels.Counters | None, building: Future[None] | None) -> None:
    """Wait for the counters' worker when all others have built, and not for long."""
    if counters and building:
        if building not in wait([building], COUNTERS_REST_S).done:
            counters.begin_kill()
        building.result()
