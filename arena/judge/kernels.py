"""Evidence: the kernels that a call launches and, where the hardware's counters may be read, what they did.

The profiler works inside the submission's process, which could falsify its report. So an excluded kernel in it justifies the
verdict `forbidden`, and a clean list never clears a submission.

The counters are read by Nsight Compute (ncu) around a worker: what the tensor cores multiplied, and what DRAM moved. ncu replays
every kernel several times, one kernel at a time. So it never runs around a worker that is timed.
"""

from __future__ import annotations

import csv
import functools
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from itertools import dropwhile
from pathlib import Path

from arena.errors import ArenaError, message_of
from arena.judge.buffers import place, release
from arena.judge.context import ScoringContext
from arena.judge.device.memory import HostBuffer
from arena.judge.problem_code import Shape
from arena.judge.rejection import Rejection, crowded
from arena.judge.sets import poison, write
from arena.judge.timing import build
from arena.judge.window import WindowSpec
from arena.judge.worker_client import Uncapturable, Worker
from arena.sandboxes.host import counters_closed, program
from arena.schema import Evidence, Kernel
from arena.system import process

NAMES_BYTES = 1 << 18
MOST_NAMES = 200
"""Different kernels of one call that are kept."""
REPORT_LIMIT_S = 60.0
"""For the counters' report, which the profiler makes when the worker ends."""
READ, WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
TENSOR = re.compile(r"sm__ops_path_tensor_src_([a-z]+\d+)(_dst_[a-z]+\d+)?(?:\.sum)?")
"""Operations by the type multiplied and, on some chips, the type of the sums: exactly 2 M N K for a matrix product."""
MARK = "spin_kernel"
"""Part of the name of the kernel that torch.cuda._sleep launches. The worker launches it before each call under the counters."""
AMBIGUOUS = "a kernel of the solution has the name of the mark between two calls"
UNSEEN = "the profiler saw no kernel"
MOST_KERNELS = 300
"""Kernels counted over all calls together; ncu replays each several times."""
QUERY_LIMIT_S = 60.0
LINE_CHARACTERS = 20_000
FAILURES = (Rejection, ArenaError, OSError, RuntimeError, MemoryError)
"""What may end the counters' worker. torch raises RuntimeError when memory is short."""
CALL_FAILURES = (*FAILURES, Uncapturable)
"""What may keep a call from being profiled. A failed capture spoils the worker."""
REPORT = '"ID",'
"""What the first line of ncu's CSV begins with, which names the columns."""
LEAST_KERNEL_S = 0.5e-6
"""No kernel among others takes less."""
MOST_COUNTED = 1e18
"""No counter of one kernel comes near this amount."""


def launched_kernels(
    context: ScoringContext, worker: Worker, shapes: Sequence[Shape], specs: Sequence[WindowSpec], counters: Counters | None
) -> tuple[Evidence, ...]:
    """The kernels of one untimed call on each shape, named by a profiler in this worker, with what `counters` read of another.

    The call is made as timed ones are, by `specs`: a submission sees whether it is captured. This is the worker's last task.
    """
    limit_s, notes, launched = context.sampling.call_limit_s, Notes(), dict[int, tuple[Kernel, ...]]()

    def start_profiler() -> None:
        worker.resume()
        worker.order("start_profiler", limit_s=limit_s)

    def profile(number: int, shape: Shape, spec: WindowSpec) -> None:
        chosen = _prepared(context, worker, shape, spec)
        memory.bytes.zero_()
        worker.order("profile", limit_s=limit_s, fds=[memory.fd], set=chosen, launch_mode=spec.launch_mode)
        launched[number] = _kernels(memory.bytes.numpy().tobytes())

    memory = HostBuffer(NAMES_BYTES)
    try:
        notes.attempt(0, start_profiler)
        for number, (shape, spec) in enumerate(zip(shapes, specs, strict=True), start=1):
            if 0 not in notes.by_call:
                notes.attempt(number, partial(profile, number, shape, spec))
    finally:
        memory.close()
    found = tuple(
        Evidence(shape=dict(shape), kernels=launched.get(number, ()), note="" if launched.get(number) else notes.of(number))
        for number, shape in enumerate(shapes, start=1)
    )
    if counters is None:
        return found
    notes.attempt(0, partial(release, context, worker))  # the calls under the counters need the memory
    notes.attempt(0, partial(worker.order, "trim", limit_s=limit_s))
    counters.read(shapes, specs)
    return counters.added_to(found)


@dataclass
class Notes:
    """Why kernels are not known: by the number of the call, and 0 for all calls."""

    by_call: dict[int, str] = field(default_factory=dict)
    over: bool = False
    """Whether no order may follow."""

    def of(self, number: int) -> str:
        """Why those of this call are not known."""
        return self.by_call.get(number) or self.by_call.get(0, UNSEEN)

    def attempt(self, number: int, step: Callable[[], object]) -> None:
        """Note where `step` fails: the score stands, its timing is over. Tampering is still a Rejection, as is an absent library.

        After an order without a reply none is sent: a late reply would look like a forged one. Nor after a failed capture, which
        spoils the worker.
        """
        if self.over:
            return
        try:
            step()
        except CALL_FAILURES as failure:
            verdict = failure.verdict if isinstance(failure, Rejection) else ""
            if verdict in ("cheated", "forbidden"):
                raise
            self.over = verdict == "timed_out" or isinstance(failure, Uncapturable)
            for each in (number, 0) if self.over else (number,):
                self.by_call.setdefault(each, f"the call under the profiler failed: {_why(failure)}")


class Counters:
    """A worker inside a profiler that reads the hardware's counters. It is frozen from `build` to `read`."""

    def __init__(self, context: ScoringContext, start: Callable[..., AbstractContextManager[Worker]], stack: ExitStack) -> None:
        self._context, self._stack, self._built = context, stack, False
        self._text: str | None = None
        self._undead: Exception | None = None
        self.crowded = False
        """Whether its build failed while others built, maybe for want of memory."""
        problem = context.problem
        wrapper = counters_command(tensor=bool(problem.arithmetic or problem.excluded_arithmetic))
        self._start = None if isinstance(wrapper, str) else partial(start, wrapper=wrapper)
        self._missing = wrapper if isinstance(wrapper, str) else ""
        self.available = self._start is not None
        """Whether this machine lets the counters be read."""
        self.restart()

    def restart(self) -> None:
        """Start a worker without the submission, in the place of one that may have it. Raises where its processes do not die."""
        if self._start is None:
            return
        if self._undead:
            raise self._undead
        self._stack.close()
        self._built, self._text, self.crowded, self._missing = False, None, False, ""
        try:
            self._worker = self._stack.enter_context(self._start())
        except FAILURES as failure:
            self._missing = f"the worker for the counters did not start: {message_of(failure)}"

    def build(self, shapes: Sequence[Shape]) -> None:
        """Load the submission and call it once on each shape, while the other workers do. Only the first time.

        A failure is a note. But Rejection where its processes do not die: nothing is timed beside them.
        """
        if self._missing or self._built:
            return
        self._built = True
        try:
            self._worker.wait_until_ready(self._context.memory)
            self._worker.order("count", limit_s=self._context.sampling.first_call_limit_s, set=None)
            build(self._context, self._worker, shapes)
        except FAILURES as failure:
            self._missing, self.crowded = f"the worker for the counters failed: {message_of(failure)}", crowded(failure)
            self._stack.close()

    def begin_kill(self) -> None:
        """End the worker while `build` waits for it."""
        if not self._missing:
            self._worker.begin_kill()

    def read(self, shapes: Sequence[Shape], specs: Sequence[WindowSpec]) -> None:
        """Read the counters of one call on each shape. Only the first time. A failure is a note, never a Rejection."""
        if self._missing or self._text is not None:
            return
        limit_s = self._context.sampling.first_call_limit_s
        try:
            for shape, spec in zip(shapes, specs, strict=True):
                number = _prepared(self._context, self._worker, shape, spec)
                self._worker.order("count", limit_s=limit_s, set=number, launch_mode=spec.launch_mode)
            self._text = self._worker.finish(REPORT_LIMIT_S).decode("utf-8", "replace")
        except CALL_FAILURES as failure:  # the score stands: its timing is over
            self._missing = f"the calls under the counters failed: {_why(failure)}"
        try:
            self._stack.close()
        except FAILURES as failure:
            self._undead = failure
            self._missing = self._missing or f"the worker for the counters did not end: {message_of(failure)}"

    def added_to(self, found: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
        """`found` with the counters that were read, and with the reason where something failed."""
        if self._text is not None:
            found = counted(found, self._text)
        return with_note(found, self._missing) if self._missing else found


@contextmanager
def counters(context: ScoringContext, start: Callable[..., AbstractContextManager[Worker]]) -> Iterator[Counters]:
    """The counters' worker, started now, since it builds with the others."""
    with ExitStack() as stack:
        yield Counters(context, start, stack)


def counted(found: tuple[Evidence, ...], text: str) -> tuple[Evidence, ...]:
    """`found` with the counters that a profiler printed. The first call there is the mark alone, from before the load."""
    calls = read_counters(text)[1:]
    if (reports := text.count(REPORT)) > 1:
        return with_note(found, f"{reports} reports of counters were printed, and one profiler prints one")
    if len(calls) > len(found):
        return with_note(found, f"the counters show {len(calls)} calls where {len(found)} were made: {AMBIGUOUS}")
    if len(calls) < len(found):
        shown = f"the counters show {len(calls)} of {len(found)} calls: they are read for {MOST_KERNELS} kernels in all"
        found = (*found[: len(calls)], *with_note(found[len(calls) :], ncu_complaint(text) or shown))
    proven = []
    for evidence, call in zip(found, calls, strict=False):
        moved = {"dram_read_bytes": call.read_bytes, "dram_write_bytes": call.write_bytes}
        proven.append(evidence.model_copy(update={"proof": "counters", "tensor_ops": call.tensor_ops, **moved}))
    return (*proven, *found[len(proven) :])


def hidden(found: Sequence[Evidence], calls_s: Sequence[float]) -> bool:
    """Whether the counters of some call are missing though the calls up to it launch fewer kernels than are counted.

    `calls_s` are the calls' times. The submission's process may falsify its launches, and they fit into those at most.
    """
    launched = 1  # the mark before the load
    for evidence, call_s in zip(found, calls_s, strict=True):
        launched += 1 + min(sum(kernel.launches for kernel in evidence.kernels), int(call_s / LEAST_KERNEL_S))
        if evidence.proof != "counters" and launched < MOST_KERNELS:
            return True
    return False


def excluded_kernels(found: Iterable[Evidence], patterns: tuple[str, ...]) -> list[tuple[Evidence, str]]:
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


def _why(failure: BaseException) -> str:
    """The failure in words."""
    return f"it could not be captured{failure}" if isinstance(failure, Uncapturable) else message_of(failure)


def _prepared(context: ScoringContext, worker: Worker, shape: Shape, spec: WindowSpec) -> int:
    """Return the number of a set with new public inputs, in the worker's buffers, after what comes before timed calls.

    That is, plain calls on as many sets as a window has, and their capture: else a submission could count its calls to tell this
    one from a timed one. It finds no answer, as no timed call does. The worker is not frozen.
    """
    limit_s = context.sampling.first_call_limit_s
    sets = place(context, worker, shape, "public", spec.calls)
    number, seeds = secrets.randbelow(sets.count), context.seeds.take(2)
    write(context.code.make_inputs(shape, seeds[0], "public", context.memory.device), sets.input(0))
    for index in range(1, sets.count):
        write(sets.input(0), sets.input(index))
    poison(sets, sets.count, seed=secrets.randbits(63))
    sets.memory.settle()
    worker.order("run", calls=sets.count, launch_mode="call", limit_s=limit_s)
    worker.order("trim", limit_s=limit_s)  # what earlier captures held: torch gives nothing back while it captures
    if spec.launch_mode == "graph":
        worker.order("capture", limit_s=limit_s)
        worker.order("choose", limit_s=limit_s, set=number)
    write(context.code.make_inputs(shape, seeds[1], "public", context.memory.device), sets.input(number))
    poison(sets, sets.count, seed=secrets.randbits(63))
    sets.memory.settle()
    return number


def _kernels(text: bytes) -> tuple[Kernel, ...]:
    """Kernels from lines of count and name, by a tab, up to the first zero byte. All other lines are skipped."""
    found = list[Kernel]()
    for line in text.partition(b"\0")[0].decode("utf-8", "replace").splitlines():
        count, _, name = line.partition("\t")
        name = "".join(c if c.isprintable() else "?" for c in name).strip()
        if name and count.isascii() and count.isdigit() and int(count[:9]) and len(found) < MOST_NAMES:
            found.append(Kernel(name=name, launches=int(count[:9])))
    return tuple(found)


@dataclass
class Call:
    """What the kernels of one call did, added up."""

    tensor_ops: dict[str, float] | None = None
    """None where they were not counted, as the mark before the call shows."""
    read_bytes: float = 0.0
    write_bytes: float = 0.0


@functools.cache
def counters_command(*, tensor: bool = True) -> tuple[str, ...] | str:
    """The command line to put before the worker's, or the reason why the counters cannot be read here.

    Without `tensor` it leaves out the tensor cores' counters, which take eight times as long as the others.
    """
    found = program("ncu")
    if found is None:
        return "no ncu (Nsight Compute) is installed where a sandbox sees it"
    if counters_closed():
        return "the driver lets only administrators read the counters (NVreg_RestrictProfilingToAdminUsers=0 opens them to all)"
    done = process.run([found, "--query-metrics"], limit_s=QUERY_LIMIT_S)
    metrics = tensor_metrics(line.split(" ", 1)[0] for line in done.stdout.decode(errors="replace").splitlines())
    if tensor and not metrics:
        return "ncu lists no tensor counters for this GPU"
    names = ",".join([*(f"{metric}.sum" for metric in metrics if tensor), READ, WRITE])
    options = ("--clock-control", "none", "--profile-from-start", "off", "--launch-count", str(MOST_KERNELS))
    return (str(Path(found).resolve()), *options, "--print-units", "base", "--csv", "--metrics", names)


def tensor_metrics(names: Iterable[str]) -> list[str]:
    """The metrics that count tensor operations by input type: the total where a chip has one, else its parts."""
    found = {name: match for name in names if (match := TENSOR.fullmatch(name))}
    totals = {match[1] for match in found.values() if not match[2]}
    return sorted(name for name, match in found.items() if not match[2] or match[1] not in totals)


def read_counters(text: str) -> list[Call]:
    """The calls in ncu's CSV, which comes after what the submission prints. Rows that make no sense are skipped, and so is a call
    that ncu did not count to its end."""
    calls: list[Call] = []
    marks, seen = set[str](), set[str]()
    for row in _rows(text):
        number, kernel, metric, value = (row.get(name) or "" for name in ("ID", "Kernel Name", "Metric Name", "Metric Value"))
        seen.add(number)
        if MARK in kernel:
            if number not in marks:
                marks.add(number)
                calls.append(Call())
            if TENSOR.fullmatch(metric):
                calls[-1].tensor_ops = calls[-1].tensor_ops or {}
        elif calls:
            _add(calls[-1], metric, value)
    return calls[:-1] if len(seen) >= MOST_KERNELS else calls


def _rows(text: str) -> Iterator[dict[str, str]]:
    lines = dropwhile(lambda line: not line.startswith(REPORT), text.splitlines())
    try:
        yield from csv.DictReader(line for line in lines if line.startswith('"') and len(line) <= LINE_CHARACTERS)
    except csv.Error:  # the submission prints to the same stream
        return


def _add(call: Call, metric: str, value: str) -> None:
    try:
        amount = float(value.replace(",", ""))
    except ValueError:
        return
    if not 0 < amount < MOST_COUNTED:
        pass
    elif metric == READ:
        call.read_bytes += amount
    elif metric == WRITE:
        call.write_bytes += amount
    elif (match := TENSOR.fullmatch(metric)) and call.tensor_ops is not None:
        call.tensor_ops[match[1]] = call.tensor_ops.get(match[1], 0.0) + amount


def ncu_complaint(text: str) -> str:
    """ncu's own error message; empty when it reports none."""
    lines = [line.removeprefix("==ERROR==").strip() for line in text.splitlines() if line.startswith("==ERROR==")]
    return "".join(c for c in lines[0] if c.isprintable())[:300] if lines else ""
