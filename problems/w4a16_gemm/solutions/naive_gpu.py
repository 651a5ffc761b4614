# verdict: passed
# Triton without tensor cores, a group of channels at a time, in fp32: right everywhere and slow. Plain torch takes over a second.
# ruff: noqa: ANN001, ANN201

import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS = 4, 16
"""Of y that one program computes."""


@triton.jit
def product(x, qw, s, z, y, M, N, K, G: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    n = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    pair = tl.arange(0, G // 2)
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for group in range(0, K // G):
        packed = tl.load(qw + n[:, None] * (K // 2) + group * (G // 2) + pair[None, :], mask=n[:, None] < N, other=0).to(tl.int32)
        scale = tl.load(s + n * (K // G) + group, mask=n < N, other=0.0).to(tl.float32)[:, None]
        zero = tl.load(z + n * (K // G) + group, mask=n < N, other=0).to(tl.float32)[:, None]
        first = x + m[:, None] * K + group * G + 2 * pair[None, :]
        even = tl.load(first, mask=m[:, None] < M, other=0.0).to(tl.float32)
        odd = tl.load(first + 1, mask=m[:, None] < M, other=0.0).to(tl.float32)
        low = ((packed & 15).to(tl.float32) - zero) * scale
        high = ((packed >> 4).to(tl.float32) - zero) * scale
        sums += tl.sum(even[:, None, :] * low[None, :, :] + odd[:, None, :] * high[None, :, :], 2)
    tl.store(y + m[:, None] * N + n[None, :], sums.to(tl.bfloat16), mask=(m[:, None] < M) & (n[None, :] < N))


def solution(x: Tensor, qw: Tensor, s: Tensor, z: Tensor, y: Tensor) -> None:
    (M, K), (N, groups) = x.shape, s.shape
    grid = (triton.cdiv(N, COLUMNS), triton.cdiv(M, ROWS))
    product[grid](x, qw, s, z, y, M, N, K, G=K // groups, ROWS=ROWS, COLUMNS=COLUMNS)
