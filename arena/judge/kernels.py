"""What really ran: the kernels that a call launches and, where the hardware's counters may be read, what they did.

The profiler works inside the submission's process, which could falsify what it says. So this is evidence: a kernel that the
rules exclude convicts its author, and a clean list acquits nobody.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatchcase

from arena.errors import JudgeError
from arena.judge import counters
from arena.judge.device.memory import HostBuffer
from arena.judge.rejection import Rejection
from arena.judge.timing import Subject, buffers
from arena.judge.window import Sets, poison, write
from arena.judge.worker_client import Worker
from arena.schema import Evidence, Kernel

NAMES_BYTES = 1 << 18
MOST_NAMES = 200
"""Different kernels of one call that are kept."""
FAREWELL_S = 60.0
"""For the counters' report, which is made when the worker ends."""
Shape = Mapping[str, int]


def launched(subject: Subject, worker: Worker, shape: Shape) -> Evidence:
    """The kernels of one untimed call, named by a profiler in this worker, which has nothing else to do any more."""
    names = HostBuffer(NAMES_BYTES)
    try:
        with _filled(subject, worker, shape):
            worker.order("names", fds=[names.fd], limit_s=subject.plan.call_limit_s)
        kernels = tuple(_kernels(names.bytes.numpy().tobytes()))
        note = "" if kernels else "the profiler saw no kernel"
    except Rejection as no:
        if no.verdict == "cheated":
            raise
        kernels, note = (), f"the call under the profiler failed: {no.message}"
    finally:
        names.close()
    return Evidence(shape=dict(shape), kernels=kernels, note=note)


def counted(
    subject: Subject, start: Callable[[], AbstractContextManager[Worker]], found: tuple[Evidence, ...]
) -> tuple[Evidence, ...]:
    """`found` with the counters of one call on each shape, read by a profiler around a worker of its own; never a Refusal."""
    try:
        with start() as worker:
            worker.greet(subject.memory.kind)
            with subject.clock.phase("build"):
                worker.load(subject.plan.build_limit_s)
            for evidence in found:
                with subject.clock.phase("build"), _filled(subject, worker, evidence.shape) as sets:
                    worker.order("run", calls=sets.count, launch_mode="stream", limit_s=subject.plan.first_call_limit_s)
                    _poison(sets)
                    with subject.clock.phase("evidence"):
                        worker.order("count", limit_s=subject.plan.first_call_limit_s)
            text = worker.farewell(FAREWELL_S).decode("utf-8", "replace")
    except (Rejection, JudgeError) as no:
        return noted(found, f"the calls under the counters failed: {no}")
    calls = counters.read(text)
    if len(calls) > len(found):
        return noted(
            found, f"the counters told of {len(calls)} calls where {len(found)} were made: a kernel of the solution's marks some"
        )
    if len(calls) < len(found):
        told = (
            f"the counters told of {len(calls)} of {len(found)} calls: they are read for {counters.MOST_KERNELS} kernels in all"
        )
        found = (*found[: len(calls)], *noted(found[len(calls) :], counters.complaint(text) or told))
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


def excluded(found: tuple[Evidence, ...], patterns: tuple[str, ...]) -> list[tuple[Evidence, str]]:
    """Kernels that the problem's rules exclude, with the evidence they stand in."""
    return [
        (evidence, kernel.name)
        for evidence in found
        for kernel in evidence.kernels
        if any(fnmatchcase(kernel.name, pattern) for pattern in patterns)
    ]


def noted(found: tuple[Evidence, ...], why: str) -> tuple[Evidence, ...]:
    """`found` with one more reason why something is missing."""
    return tuple(evidence.model_copy(update={"note": "; ".join(filter(None, (evidence.note, why)))}) for evidence in found)


@contextmanager
def _filled(subject: Subject, worker: Worker, shape: Shape) -> Iterator[Sets]:
    """Buffers with one new public input set in them. No clock runs, so nobody has to be stopped for it."""
    with buffers(subject, worker, shape, "public", 1) as sets:
        (seed,) = subject.seeds.take(1)
        write(subject.code.make_inputs(shape, seed, "public", subject.memory.device), sets.input(0))
        _poison(sets)
        yield sets


def _poison(sets: Sets) -> None:
    """Outputs as before any other call: the one that is looked at neither finds an answer there nor sees that it is another."""
    poison(sets, sets.count, seed=secrets.randbits(63))
    sets.memory.settle()


def _kernels(text: bytes) -> Iterator[Kernel]:
    """From lines of count, tab, name, up to the first zero byte. Whatever else is there is passed over."""
    for line in text.partition(b"\0")[0].decode("utf-8", "replace").splitlines()[:MOST_NAMES]:
        count, _, name = line.partition("\t")
        name = "".join(c if c.isprintable() else "?" for c in name).strip()
        if name and count.isascii() and count.isdigit() and int(count[:9]) > 0:
            yield Kernel(name=name, launches=int(count[:9]))
