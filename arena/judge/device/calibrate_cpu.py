"""Measure what one core of this machine attains: the ceilings of hardware `cpu`.

One core, since a CPU score is taken on one core. The best of many tries counts, because a ceiling lowered by a slow moment would
make a kernel look better than it is. Cached per processor and method; `arena calibrate` measures again and keeps the best.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import torch

from arena import paths
from arena.errors import DataError
from arena.files import documents
from arena.schema import Rate, Record
from arena.system import load
from arena.system.provenance import processor

METHOD = 2
"""Part of the cache file's name: raise it when the way of measuring changes."""
WORKING_SETS_MIB = (16, 32, 64)
"""About the size of one window's sets, so that the bandwidth is that of the memory a timed call reads."""
TRIES = 40
MOST_S = 2.0
"""No try starts after this long. Where a processor has no bf16 instructions, one bf16 product takes more than a second."""
GEMM_SIZE = 1024


class Calibration(Record):
    """Measured ceilings of one processor core."""

    method: int
    device: str
    torch: str
    measured_at: datetime
    bandwidth_gb_s: float
    """Best of reading (sum) and copying (read and write counted), GB/s (1e9)."""
    tflops: dict[Rate, float]
    """Best square matrix product of numbers of that type, by any arithmetic that holds them exactly, TFLOP/s (1e12)."""
    busy: str = ""
    """What others used of the machine meanwhile, where that was much: the ceilings may be too low, and scores too high."""


def cpu() -> Calibration:
    """The cached calibration of this processor; measured first where there is none."""
    return known() or keep(measure())


def keep(found: Calibration) -> Calibration:
    """Cache and return the best of what was found now and what is cached."""
    kept = best(earlier, found) if (earlier := known()) else found
    path = _cache_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    documents.write_json(path, kept.model_dump(mode="json"))
    return kept


def known() -> Calibration | None:
    """The cached calibration of this processor; None when there is none, or the file is damaged: then it is written again."""
    path = _cache_file()
    if not path.is_file():
        return None
    try:
        return documents.read_json(path, Calibration)
    except DataError:
        return None


def best(kept: Calibration, found: Calibration) -> Calibration:
    """`found`, with the higher of each speed: a speed reached once can be reached."""
    return found.model_copy(
        update={
            "bandwidth_gb_s": max(kept.bandwidth_gb_s, found.bandwidth_gb_s),
            "tflops": {rate: max(value, kept.tflops.get(rate, 0.0)) for rate, value in found.tflops.items()},
            "busy": kept.busy and found.busy,
        }
    )


def measure() -> Calibration:
    """Measure one core, in some seconds."""
    seen = load.look()
    with on_cores({max(os.sched_getaffinity(0))}):
        fp32 = _gemm_tflops(torch.float32)
        return Calibration(
            method=METHOD,
            device=processor(),
            torch=torch.__version__,
            measured_at=datetime.now(UTC),
            bandwidth_gb_s=max(_bandwidth_gb_s(mib) for mib in WORKING_SETS_MIB),
            # Many processors compute bf16 slower than fp32. A kernel may compute in fp32, so that speed is the ceiling of bf16.
            tflops={"fp32": fp32, "bf16": max(fp32, _gemm_tflops(torch.bfloat16))},
            busy=seen.share() if seen.busy else "",
        )


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Run this process on these cores, with one thread for each."""
    cpus, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(len(cores))
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)
        torch.set_num_threads(threads)


def copy_gb_s() -> float:
    """A quick reading of the copy rate: the anchor that shows whether the machine keeps its speed."""
    source = torch.ones(WORKING_SETS_MIB[0] << 18)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _best_s(lambda: target.copy_(source), tries=10) / 1e9


def _bandwidth_gb_s(mib: int) -> float:
    source = torch.ones(mib << 18)
    half = source.numel() // 2
    reading = source.nbytes / _best_s(lambda: source.sum())
    copying = source.nbytes / _best_s(lambda: source[:half].copy_(source[half:]))
    return max(reading, copying) / 1e9


def _gemm_tflops(dtype: torch.dtype) -> float:
    matrix = torch.randn(GEMM_SIZE, GEMM_SIZE, generator=torch.Generator().manual_seed(0)).to(dtype)
    return 2 * GEMM_SIZE**3 / _best_s(lambda: matrix @ matrix) / 1e12


def _best_s(call: Callable[[], object], tries: int = TRIES) -> float:
    call()
    best, spent = float("inf"), 0.0
    for _ in range(tries):
        begin = time.perf_counter()
        call()
        took_s = time.perf_counter() - begin
        best, spent = min(best, took_s), spent + took_s
        if spent > MOST_S:
            break
    return best


def _cache_file() -> Path:
    key = f"{METHOD}|{processor()}|{os.cpu_count()}|{torch.__version__}"
    return paths.cache() / "calibration" / f"cpu-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"
