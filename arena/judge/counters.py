"""The hardware's counters, read by Nsight Compute around a worker: what the tensor cores multiplied, and what DRAM moved.

It replays every kernel several times, one kernel at a time. So the worker it runs around is never one that is timed.
"""

from __future__ import annotations

import csv
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from arena.sandboxes.host import counters_closed, program
from arena.system import process

READ, WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"
TENSOR = re.compile(r"sm__ops_path_tensor_src_([a-z]+\d+)(_dst_[a-z]+\d+)?(?:\.sum)?")
"""Operations by what is multiplied and, on some chips, what the sums are kept in: exactly 2 M N K for a matrix product."""
MARK = "spin_kernel"
"""In the name of the kernel that torch.cuda._sleep launches: it begins a call."""
MOST_KERNELS = 300
"""Of all calls together; each is replayed several times."""
QUERY_LIMIT_S = 60.0
LINE_CHARACTERS = 20_000
MOST = 1e18
"""No counter of one kernel comes near."""


@dataclass
class Call:
    """What the kernels of one call did, added up."""

    tensor_ops: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    read_bytes: float = 0.0
    write_bytes: float = 0.0


@functools.cache
def command() -> tuple[str, ...] | str:
    """The command line that goes before the worker's, or why the counters cannot be read here."""
    found = program("ncu")
    if found is None:
        return "there is no ncu (Nsight Compute) where a box sees it"
    if counters_closed():
        return "the driver keeps the counters to administrators (NVreg_RestrictProfilingToAdminUsers=0 lets everybody read them)"
    asked = process.run([found, "--query-metrics"], limit_s=QUERY_LIMIT_S)
    metrics = tensor_metrics(line.split(" ", 1)[0] for line in asked.stdout.decode(errors="replace").splitlines())
    if not metrics:
        return "ncu names no tensor counters for this GPU"
    names = ",".join([*(f"{metric}.sum" for metric in metrics), READ, WRITE])
    options = ("--clock-control", "none", "--profile-from-start", "off", "--launch-count", str(MOST_KERNELS))
    return (str(Path(found).resolve()), *options, "--print-units", "base", "--csv", "--metrics", names)


def tensor_metrics(names: Iterable[str]) -> list[str]:
    """Those that count tensor operations by input type: the total where a chip has one, else its parts."""
    found = {name: match for name in names if (match := TENSOR.fullmatch(name))}
    totals = {match[1] for match in found.values() if not match[2]}
    return sorted(name for name, match in found.items() if not match[2] or match[1] not in totals)


def read(text: str) -> list[Call]:
    """The calls in ncu's CSV, which stands among other lines. Rows that make no sense are passed over, and so is a call that
    the profiler did not see to its end."""
    calls: list[Call] = []
    marks: set[str] = set()
    seen: set[str] = set()
    for row in _rows(text):
        number, kernel, metric, value = (row.get(name) or "" for name in ("ID", "Kernel Name", "Metric Name", "Metric Value"))
        seen.add(number)
        if MARK in kernel:
            if number not in marks:
                marks.add(number)
                calls.append(Call())
            continue
        if calls:
            _add(calls[-1], metric, value)
    return calls[:-1] if len(seen) >= MOST_KERNELS else calls


def _rows(text: str) -> Iterator[dict[str, str]]:
    lines = (line for line in text.splitlines() if line.startswith('"') and len(line) <= LINE_CHARACTERS)
    try:
        yield from csv.DictReader(lines)
    except csv.Error:  # the submission prints to the same stream
        return


def _add(call: Call, metric: str, value: str) -> None:
    try:
        amount = float(value.replace(",", ""))
    except ValueError:
        return
    if not 0 < amount < MOST:
        return
    if metric == READ:
        call.read_bytes += amount
    elif metric == WRITE:
        call.write_bytes += amount
    elif match := TENSOR.fullmatch(metric):
        call.tensor_ops[match[1]] += amount


def complaint(text: str) -> str:
    """ncu's own words when it gave up; empty when it did not."""
    lines = [line.removeprefix("==ERROR==").strip() for line in text.splitlines() if line.startswith("==ERROR==")]
    return "".join(c for c in lines[0] if c.isprintable())[:300] if lines else ""
