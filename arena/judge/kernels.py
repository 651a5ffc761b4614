"""Evidence: the kernels that a call launches and, where the hardware's counters may be read, what they did.

The profiler works inside the submission's process, which could falsify its report. So an excluded kernel in it justifies the
verdict `forbidden`, and a clean list never clears a submission.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatchcase

from arena.errors import JudgeError
from arena.judge import counters
from arena.judge.device.memory import HostBuffer
from arena.judge.problem_code import Shape
from arena.judge.rejection import Rejection
from arena.judge.timing import ScoringContext, buffers
from arena.judge.window import Sets, poison, write
from arena.judge.worker_client import Worker
from arena.schema import Evidence, Kernel

NAMES_BYTES = 1 << 18
MOST_NAMES = 200
"""Different kernels of one call that are kept."""
REPORT_LIMIT_S = 60.0
"""For the counters' report, which the profiler makes when the worker ends."""


def launched_kernels(context: ScoringContext, worker: Worker, shape: Shape) -> Evidence:
    """The kernels of one untimed call, named by a profiler in this worker. This is the worker's last task."""
    names = HostBuffer(NAMES_BYTES)
    try:
        with _filled(context, worker, shape):
            worker.order("names", fds=[names.fd], limit_s=context.sampling.call_limit_s)
        kernels = tuple(_kernels(names.bytes.numpy().tobytes()))
        note = "" if kernels else "the profiler saw no kernel"
    except Rejection as rejection:
        if rejection.verdict == "cheated":
            raise
        kernels, note = (), f"the call under the profiler failed: {rejection.message}"
    finally:
        names.close()
    return Evidence(shape=dict(shape), kernels=kernels, note=note)


def with_counters(
    context: ScoringContext, start: Callable[[], AbstractContextManager[Worker]], found: tuple[Evidence, ...]
) -> tuple[Evidence, ...]:
    """`found` with the counters of one call on each shape, read by a profiler around a fresh worker. Never raises Rejection."""
    try:
        with start() as worker:
            worker.wait_until_ready(context.memory.kind)
            with context.stopwatch.phase("build"):
                worker.load(context.sampling.build_limit_s)
            for evidence in found:
                with context.stopwatch.phase("build"), _filled(context, worker, evidence.shape) as sets:
                    worker.order("run", calls=sets.count, launch_mode="stream", limit_s=context.sampling.first_call_limit_s)
                    _poison(sets)
                    with context.stopwatch.phase("evidence"):
                        worker.order("count", limit_s=context.sampling.first_call_limit_s)
            text = worker.finish(REPORT_LIMIT_S).decode("utf-8", "replace")
    except (Rejection, JudgeError) as failure:
        return with_note(found, f"the calls under the counters failed: {failure}")
    calls = counters.read(text)
    if len(calls) > len(found):
        text = f"the counters show {len(calls)} calls where {len(found)} were made: a kernel of the solution has the mark's name"
        return with_note(found, text)
    if len(calls) < len(found):
        shown = f"the counters show {len(calls)} of {len(found)} calls: they are read for {counters.MOST_KERNELS} kernels in all"
        found = (*found[: len(calls)], *with_note(found[len(calls) :], counters.complaint(text) or shown))
    proven = tuple(
        evidence.model_copy(
            update={
                "proof": "counters",
                "tensor_ops": dict(call.tensor_ops),
                "dram_read_bytes": call.read_bytes,
                "dram_write_bytes": call.write_bytes,
            }
        )
        for evidence, call in zip(found, calls, strict=False)
    )
    return (*proven, *found[len(proven) :])


def excluded_kernels(found: tuple[Evidence, ...], patterns: tuple[str, ...]) -> list[tuple[Evidence, str]]:
    """Kernels that the problem's rules exclude, each with the evidence that names it."""
    return [
        (evidence, kernel.name)
        for evidence in found
        for kernel in evidence.kernels
        if any(fnmatchcase(kernel.name, pattern) for pattern in patterns)
    ]


def with_note(found: tuple[Evidence, ...], reason: str) -> tuple[Evidence, ...]:
    """`found` with one more reason why something is missing."""
    return tuple(evidence.model_copy(update={"note": "; ".join(filter(None, (evidence.note, reason)))}) for evidence in found)


@contextmanager
def _filled(context: ScoringContext, worker: Worker, shape: Shape) -> Iterator[Sets]:
    """Buffers with one new public input set. Nothing is timed, so the worker is not frozen meanwhile."""
    with buffers(context, worker, shape, "public", 1) as sets:
        (seed,) = context.seeds.take(1)
        write(context.code.make_inputs(shape, seed, "public", context.memory.device), sets.input(0))
        _poison(sets)
        yield sets


def _poison(sets: Sets) -> None:
    """Fill the outputs as before any other call: the profiled call finds no answer there, and cannot tell that it is profiled."""
    poison(sets, sets.count, seed=secrets.randbits(63))
    sets.memory.settle()


def _kernels(text: bytes) -> Iterator[Kernel]:
    """Kernels from lines of count, tab, name, up to the first zero byte. All other bytes are skipped."""
    for line in text.partition(b"\0")[0].decode("utf-8", "replace").splitlines()[:MOST_NAMES]:
        count, _, name = line.partition("\t")
        name = "".join(c if c.isprintable() else "?" for c in name).strip()
        if name and count.isascii() and count.isdigit() and int(count[:9]) > 0:
            yield Kernel(name=name, launches=int(count[:9]))
