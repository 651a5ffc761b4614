"""Matrix products by which `arena calibrate` measures what a GPU's arithmetic attains: one square product per rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch

from arena.schema import Rate

Product = Callable[[], torch.Tensor]


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
