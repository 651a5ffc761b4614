# verdict: passed
# Triton, which compiles for the GPU in the first call.
# ruff: noqa: ANN001, ANN201

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = at < n
    tl.store(y + at, 2 * tl.load(x + at, mask=real), mask=real)


def solution(x: Tensor, y: Tensor) -> None:
    double[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
