# verdict: passed
# Triton as in a first tutorial: a small tile per program, nothing shared between gate and up, and no look at the caches.
# ruff: noqa: ANN001, ANN201, E741

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def experts(x, tok, off, W, out, E, H, I, BLOCK: tl.constexpr):
    """BLOCK columns of at most BLOCK rows: program 0 has the first rows of all, and steps from expert to expert."""
    first = tl.program_id(0) * BLOCK
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    h = tl.arange(0, BLOCK)
    row = first + tl.arange(0, BLOCK)
    for e in range(E):
        begin, end = tl.load(off + e), tl.load(off + e + 1)
        if (begin < first + BLOCK) & (end > first):
            real = (row >= begin) & (row < end)
            token = tl.load(tok + row, mask=real, other=0).to(tl.int64)
            gate = tl.zeros([BLOCK, BLOCK], tl.float32)
            up = tl.zeros([BLOCK, BLOCK], tl.float32)
            of_gate = (e * 2 * I + i).to(tl.int64)
            gates, ups = W + of_gate[None, :] * H, W + (of_gate + I)[None, :] * H
            for start in range(0, H, BLOCK):
                inside = start + h < H
                at = x + token[:, None] * H + (start + h)[None, :]
                tokens = tl.load(at, mask=real[:, None] & inside[None, :], other=0.0)
                live = (i < I)[None, :] & inside[:, None]
                gate += tl.dot(tokens, tl.load(gates + (start + h)[:, None], mask=live, other=0.0))
                up += tl.dot(tokens, tl.load(ups + (start + h)[:, None], mask=live, other=0.0))
            result = gate / (1 + tl.exp(-gate)) * up
            to = out + row.to(tl.int64)[:, None] * I + i[None, :]
            tl.store(to, result.to(out.dtype.element_ty), mask=real[:, None] & (i < I)[None, :])


def solution(x: Tensor, tok: Tensor, off: Tensor, W: Tensor, out: Tensor) -> None:
    (H, E, twice, R), block = (x.shape[1], *W.shape[:2], len(tok)), 16
    grid = (triton.cdiv(R, block), triton.cdiv(twice // 2, block))
    experts[grid](x, tok, off, W, out, E, H, twice // 2, BLOCK=block, num_warps=1)
