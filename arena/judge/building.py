"""Workers that build a submission: started together, measured while they have none, and built at once where there is room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Self

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
COUNTERS_REST_S = 120.0
"""How long the counters' worker may build when all others have built."""


class OwnWorker:
    """A worker that ends with this block, or earlier, and that another may replace."""

    def __init__(self, start: Start, prepare: Callable[[Worker], None]) -> None:
        self._start, self._stack = start, ExitStack()
        self.prepare = prepare
        """What is done in a worker before it loads the submission."""
        self.worker = self._stack.enter_context(start())
        self.replaced = False
        """Whether it has not the worker any more that it began with."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> bool | None:  # noqa: ANN401  as of any context manager
        return self._stack.__exit__(*exception)

    def end(self) -> None:
        """End the worker."""
        self.replaced = True
        self._stack.close()

    def replace(self) -> None:
        """Start another in the place of one that has ended, and prepare it."""
        self.worker = self._stack.enter_context(self._start())
        self.prepare(self.worker)


Job = tuple[OwnWorker, tuple[Shape, ...]]
"""A worker, and the shapes that it is to build for."""


def built(
    context: ScoringContext,
    start: Start,
    stack: ExitStack,
    shapes_by_process: list[tuple[Shape, ...]],
    counters: kernels.Counters | None,
    report: Report,
) -> tuple[list[OwnWorker], list[list[Overhead]]]:
    """Fresh workers that have built the submission, each for its shapes, and the judge's own part of the windows in each."""
    workers = start_workers(context, start, stack)
    overheads = own_parts(context, workers, shapes_by_process)
    build(context, jobs(workers, shapes_by_process), counters, report)
    return workers, overheads


def timed_worker(context: ScoringContext, start: Start, stack: ExitStack) -> OwnWorker:
    """A worker to be timed, which ends with the stack at the latest."""
    return stack.enter_context(OwnWorker(start, lambda worker: worker.wait_until_ready(context.memory)))


def start_workers(context: ScoringContext, start: Start, stack: ExitStack) -> list[OwnWorker]:
    """The workers to be timed, started together, since none has the submission yet."""
    return [timed_worker(context, start, stack) for _ in range(context.sampling.processes)]


def jobs(workers: list[OwnWorker], shapes_by_process: list[tuple[Shape, ...]]) -> list[Job]:
    """What each of these workers is to build. None may have been started."""
    return list(zip(workers, shapes_by_process, strict=True)) if workers else []


def own_parts(
    context: ScoringContext, workers: list[OwnWorker], shapes_by_process: list[tuple[Shape, ...]]
) -> list[list[Overhead]]:
    """For each worker, the judge's own part of the windows of its shapes."""
    return [own_part(context, own.worker, shapes) for own, shapes in jobs(workers, shapes_by_process)]


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

    On a GPU all do so at once, and memory may be too short for that. Others then build in the place of those that fail, one after
    the other.
    """
    report("building")
    alone = context.memory.kind == "host" or (len(to_build) == 1 and not counters)  # workers on a CPU share one core
    at_once = 1 if alone else len(to_build) + 1
    threads = ThreadPoolExecutor(at_once, initializer=context.memory.use_in_thread)

    def attempt(job: Job) -> Rejection | None:
        """Build. The verdict where memory may have been short, for this worker or the judge beside it, because of the others."""
        try:
            timing.build(context, job[0].worker, job[1])
        except (Rejection, MemoryError, OSError, RuntimeError) as failure:  # torch raises RuntimeError when memory is short
            verdict = failure.alone() if isinstance(failure, Rejection) else job[0].worker.charge(failure)
            if at_once == 1 or not crowded(failure) or not verdict:
                raise
            return verdict
        return None

    with context.stopwatch.phase("build"), threads as pool:
        try:
            counting = pool.submit(counters.build, context.problem.shapes["gpu"]) if counters else None
            verdicts = [done.result() for done in [pool.submit(attempt, job) for job in to_build]]
            failed = [(job, verdict) for job, verdict in zip(to_build, verdicts, strict=True) if verdict]
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
            for own, _ in to_build:
                own.worker.begin_kill()
            if counters:
                counters.begin_kill()
            raise


def _build_alone(context: ScoringContext, failed: list[tuple[Job, Rejection]]) -> None:
    """Build where it failed, with all others stopped. What fails now is the submission's own: the first verdict stands.

    In fresh workers: a second import in the same process may fail (a library of torch's is registered once), and keeps the memory
    that the first one holds.
    """
    for (own, _), verdict in failed:
        with _standing(verdict):
            own.end()
    for (own, shapes), verdict in failed:
        with _standing(verdict):
            own.replace()
            timing.build(context, own.worker, shapes)


@contextmanager
def _standing(verdict: Rejection) -> Iterator[None]:
    """Raise this verdict in the place of whatever fails later: what a submission caused becomes no failure of the judge."""
    try:
        yield
    except (Rejection, ArenaError, MemoryError, OSError, RuntimeError):
        raise verdict from None


def _await_counters(counters: kernels.Counters | None, building: Future[None] | None) -> None:
    """Wait for the counters' worker when all others have built, and not for long."""
    if counters and building:
        if building not in wait([building], COUNTERS_REST_S).done:
            counters.begin_kill()
        building.result()
