"""The hardware's counters, read by Nsight Compute (ncu) around a worker: what the tensor cores multiplied, and what DRAM moved.

ncu replays every kernel several times, one kernel at a time. So it never runs around a worker that is timed.
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
"""Operations by the type multiplied and, on some chips, the type of the sums: exactly 2 M N K for a matrix product."""
MARK = "spin_kernel"
"""Part of the name of the kernel that torch.cuda._sleep launches. The worker launches it before each call."""
MOST_KERNELS = 300
"""Kernels counted over all calls together; ncu replays each several times."""
QUERY_LIMIT_S = 60.0
LINE_CHARACTERS = 20_000
MOST = 1e18
"""No counter of one kernel comes near this amount."""


@dataclass
class Call:
    """What the kernels of one call did, added up."""

    tensor_ops: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    read_bytes: float = 0.0
    write_bytes: float = 0.0


@functools.cache
def command() -> tuple[str, ...] | str:
    """The command line to put before the worker's, or the reason why the counters cannot be read here."""
    found = program("ncu")
    if found is None:
        return "no ncu (Nsight Compute) is installed where a sandbox sees it"
    if counters_closed():
        return "the driver lets only administrators read the counters (NVreg_RestrictProfilingToAdminUsers=0 opens them to all)"
    done = process.run([found, "--query-metrics"], limit_s=QUERY_LIMIT_S)
    metrics = tensor_metrics(line.split(" ", 1)[0] for line in done.stdout.decode(errors="replace").splitlines())
    if not metrics:
        return "ncu lists no tensor counters for this GPU"
    names = ",".join([*(f"{metric}.sum" for metric in metrics), READ, WRITE])
    options = ("--clock-control", "none", "--profile-from-start", "off", "--launch-count", str(MOST_KERNELS))
    return (str(Path(found).resolve()), *options, "--print-units", "base", "--csv", "--metrics", names)


def tensor_metrics(names: Iterable[str]) -> list[str]:
    """The metrics that count tensor operations by input type: the total where a chip has one, else its parts."""
    found = {name: match for name in names if (match := TENSOR.fullmatch(name))}
    totals = {match[1] for match in found.values() if not match[2]}
    return sorted(name for name, match in found.items() if not match[2] or match[1] not in totals)


def read(text: str) -> list[Call]:
    """The calls in ncu's CSV, which is mixed with other lines. Rows that make no sense are skipped, and so is a call that ncu did
    not count to its end."""
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
    """ncu's own error message; empty when it reports none."""
    lines = [line.removeprefix("==ERROR==").strip() for line in text.splitlines() if line.startswith("==ERROR==")]
    return "".join(c for c in lines[0] if c.isprintable())[:300] if lines else ""
