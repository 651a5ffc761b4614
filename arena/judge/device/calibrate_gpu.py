"""Measure what one GPU attains: shown beside the datasheet's peaks, which alone divide a score.

No kernel reaches the whole peak: DRAM refreshes, and tensor cores on random data draw more power than the board may. The best of
many tries counts, since a rate reached once can be reached. Cached per GPU (UUID) and method. Clocks are used as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from arena import paths
from arena.errors import DataError, JudgeError
from arena.files import documents
from arena.judge.device import nvml
from arena.schema import Attainable, Rate

Product = Callable[[], torch.Tensor]
METHOD = 1
"""Raise it when the way of measuring changes: calibrations by another method are then ignored."""
BUFFERS_GIB = (2, 4, 8)
"""Each many times as large as the last cache (60 to 130 MB), so that only a small share can be read again without DRAM."""
COLUMNS = 8192
CALLS, TRIES = 5, 12
"""Calls between two events, so that the events cost little of a call's time, and how often this is repeated."""
TRIES_S = 1.0
"""No try starts after this long: where fp64 has no tensor cores, one product takes 0.1 s."""
LAUNCHES = 1000


def keep(index: int, found: Attainable) -> Attainable:
    """Cache and return the best of what was found now on GPU number `index` and what is cached."""
    uuid = _uuid(index)
    kept = best(earlier, found) if (earlier := known(uuid)) else found
    path = _cache_file(uuid)
    path.parent.mkdir(parents=True, exist_ok=True)
    documents.write_json(path, kept.model_dump(mode="json"))
    return kept


def known(uuid: str) -> Attainable | None:
    """The cached calibration of that GPU; None when there is none, it is by another method, or the file is damaged."""
    path = _cache_file(uuid)
    if not path.is_file():
        return None
    try:
        found = documents.read_json(path, Attainable)
    except DataError:
        return None  # `arena calibrate` writes it again; a score needs none
    return found if found.method == METHOD else None


def best(kept: Attainable, found: Attainable) -> Attainable:
    """`found`, with the better of each figure: a speed reached once can be reached."""
    return found.model_copy(
        update={
            "copy_gb_s": max(kept.copy_gb_s, found.copy_gb_s),
            "read_gb_s": max(kept.read_gb_s, found.read_gb_s),
            "tflops": {rate: max(value, kept.tflops.get(rate, 0.0)) for rate, value in found.tflops.items()},
            "launch_s": min(kept.launch_s, found.launch_s),
        }
    )


def measure(index: int) -> Attainable:
    """Measure GPU number `index`, as CUDA counts, in a few seconds. JudgeError when its memory is in use."""
    with nvml.opened(_uuid(index)) as gpu:
        driver = gpu.driver() if gpu is not None else nvml.UNKNOWN
    with torch.cuda.device(index):
        # Matrix products first: a GPU that was idle is at full clocks after them.
        tflops = _tflops()
        copy_gb_s, read_gb_s = _bandwidth_gb_s()
        return Attainable(
            method=METHOD,
            measured_at=datetime.now(UTC),
            torch=torch.__version__,
            driver=driver,
            copy_gb_s=copy_gb_s,
            read_gb_s=read_gb_s,
            tflops=tflops,
            launch_s=_launch_s(),
        )


def _bandwidth_gb_s() -> tuple[float, float]:
    """(copying, with read and write counted; reading), GB/s. The best of several sizes, and of several kernels that read."""
    torch.cuda.empty_cache()
    free_bytes = torch.cuda.mem_get_info()[0]
    sizes = [gib for gib in BUFFERS_GIB if 2 * (gib << 30) < 0.9 * free_bytes]
    if not sizes:
        text = f"only {free_bytes / 1e9:.1f} GB of the GPU's memory are free, and calibrating takes {2.4 * BUFFERS_GIB[0]:.0f} GB"
        raise JudgeError(f"{text}: end the processes that hold it (nvidia-smi lists them)")
    source = torch.rand(max(sizes) << 28, device="cuda")
    target = torch.empty_like(source)
    vector = torch.rand(COLUMNS, device="cuda")
    copying = reading = 0.0
    for gib in sizes:
        a, b = source[: gib << 28], target[: gib << 28]
        rows = a.view(-1, COLUMNS)
        readers: tuple[Product, ...] = (a.sum, a.amax, partial(rows.sum, 1), partial(rows.mv, vector))
        copying = max(copying, 2 * a.nbytes / _best_s(partial(b.copy_, a)) / 1e9)
        reading = max(reading, *(a.nbytes / _best_s(read) / 1e9 for read in readers))
    return copying, reading


def _tflops() -> dict[Rate, float]:
    """TFLOP/s of the best product in each arithmetic that this device and this torch support."""
    found: dict[Rate, float] = {}
    for rate, gemm in GEMMS.items():
        with fp32_as("tf32" if rate == "tf32" else "ieee"):
            seconds = [taken for product in _products(gemm) if (taken := _tried_s(product)) is not None]
        if seconds:
            found[rate] = 2 * gemm.size**3 / min(seconds) / 1e12
    return found


def _products(gemm: Gemm) -> Sequence[Product]:
    try:
        return gemm.calls(matrix(gemm, 0, "cuda"), matrix(gemm, 1, "cuda"))
    except (RuntimeError, AttributeError):  # a type that this device cannot hold, or a function that this torch lacks
        return ()


def _tried_s(product: Product) -> float | None:
    """Seconds for the product; None where it is not supported, as fp8 below compute capability 8.9."""
    try:
        return _best_s(product)
    except (RuntimeError, ValueError, AttributeError):
        return None


def _launch_s() -> float:
    """Seconds from one empty kernel to the next, without the cost of starting a graph."""
    torch.cuda._sleep(0)
    long_s, short_s = _best_s(_graph(2 * LAUNCHES).replay), _best_s(_graph(LAUNCHES).replay)
    return (long_s - short_s) / LAUNCHES


def _graph(kernels: int) -> torch.cuda.CUDAGraph:
    """A graph of that many kernels that do nothing, one after the other."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(kernels):
            torch.cuda._sleep(0)
    return graph


def _best_s(call: Callable[[], object]) -> float:
    """Seconds of one call among several back to back, the best of many tries, by the device's clock."""
    best_ms, until_s = float("inf"), time.monotonic() + TRIES_S
    for _ in range(TRIES):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        call()  # keeps the device busy while the host queues the rest; the first time, it also loads the kernel
        begin.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        best_ms = min(best_ms, float(begin.elapsed_time(end)))
        if time.monotonic() > until_s:
            break
    return best_ms / CALLS / 1e3


def _uuid(index: int) -> str:
    return f"GPU-{torch.cuda.get_device_properties(index).uuid}"


def _cache_file(uuid: str) -> Path:
    return paths.cache() / "calibration" / f"gpu-{uuid.removeprefix('GPU-')}.json"


class Gemm(NamedTuple):
    """A product of two square matrices of one type, and the library calls that compute it."""

    dtype: torch.dtype
    size: int
    """Large enough to fill the GPU; smaller where the arithmetic is slow."""
    calls: Callable[[torch.Tensor, torch.Tensor], Sequence[Product]]


def matrix(gemm: Gemm, seed: int, device: str) -> torch.Tensor:
    """A random matrix of the gemm's type and size. Zeros multiply faster: 894 against 788 TFLOP/s in bf16 on an H200."""
    generator = torch.Generator(device).manual_seed(seed)
    shape = (gemm.size, gemm.size)
    if gemm.dtype == torch.int8:
        return torch.randint(-128, 128, shape, generator=generator, device=device, dtype=torch.int8)
    drawn = torch.float64 if gemm.dtype == torch.float64 else torch.float32
    return torch.randn(shape, generator=generator, device=device, dtype=drawn).to(gemm.dtype)


@contextmanager
def fp32_as(precision: Literal["ieee", "tf32"]) -> Iterator[None]:
    """Inside the block, torch computes products of fp32 matrices with this precision."""
    settings = torch.backends.cuda.matmul
    before = settings.fp32_precision
    settings.fp32_precision = precision
    try:
        yield
    finally:
        settings.fp32_precision = before


def _plain(a: torch.Tensor, b: torch.Tensor) -> Sequence[Product]:
    """Both layouts of the second matrix: the library has separate kernels for each."""
    return (lambda: a @ b, lambda: a @ b.t())


def _int8(a: torch.Tensor, b: torch.Tensor) -> Sequence[Product]:
    return (lambda: torch._int_mm(a, b), lambda: torch._int_mm(a, b.t()))


def _fp8(a: torch.Tensor, b: torch.Tensor) -> Sequence[Product]:
    """With one scale for each matrix, and with one for each row and column. The library takes only a transposed second matrix."""
    one, per_row = torch.ones((), device=a.device), torch.ones(len(a), 1, device=a.device)

    def scaled(a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
        return torch._scaled_mm(a, b.t(), a_scale, b_scale, out_dtype=torch.bfloat16, use_fast_accum=True)

    return (lambda: scaled(one, one), lambda: scaled(per_row, per_row.t()))


GEMMS: dict[Rate, Gemm] = {
    "fp64": Gemm(torch.float64, 4096, _plain),
    "fp32": Gemm(torch.float32, 4096, _plain),
    "tf32": Gemm(torch.float32, 8192, _plain),
    "fp16": Gemm(torch.float16, 8192, _plain),
    "bf16": Gemm(torch.bfloat16, 8192, _plain),
    "fp8": Gemm(torch.float8_e4m3fn, 8192, _fp8),
    "int8": Gemm(torch.int8, 8192, _int8),
}
