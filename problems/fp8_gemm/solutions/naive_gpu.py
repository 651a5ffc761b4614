# verdict: passed
# Triton as in a first tutorial: e4m3 to fp16, which holds it exactly, small tiles, and no look at the caches.
# ruff: noqa: ANN001, ANN201

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def multiply(x, w, y, sx, sw, M, N, K, BLOCK: tl.constexpr):
    """BLOCK rows and BLOCK columns of y."""
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    k = tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK, BLOCK], tl.float32)
    for start in range(0, K, BLOCK):
        inside = start + k < K
        left = x + m.to(tl.int64)[:, None] * K + (start + k)[None, :]
        right = w + n.to(tl.int64)[None, :] * K + (start + k)[:, None]
        a = tl.load(left, mask=(m < M)[:, None] & inside[None, :], other=0.0)
        b = tl.load(right, mask=(n < N)[None, :] & inside[:, None], other=0.0)
        acc += tl.dot(a.to(tl.float16), b.to(tl.float16))
    live_m, live_n = m < M, n < N
    acc *= tl.load(sx + m, mask=live_m, other=0.0)[:, None]
    acc *= tl.load(sw + n, mask=live_n, other=0.0)[None, :]
    tl.store(y + m.to(tl.int64)[:, None] * N + n[None, :], acc.to(tl.bfloat16), mask=live_m[:, None] & live_n[None, :])


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    (M, K), N, block = x.shape, len(w), 32
    multiply[(triton.cdiv(M, block), triton.cdiv(N, block))](x, w, y, sx, sw, M, N, K, BLOCK=block, num_warps=1, num_stages=1)
