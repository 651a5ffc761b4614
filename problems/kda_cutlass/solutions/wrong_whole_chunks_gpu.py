# verdict: incorrect
# As naive, without the tokens after the last whole chunk of 64. In plain torch a call would be 300,000 launches.
# ruff: noqa: ANN001, ANN201

import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 16
"""Of the state that one program has: they never meet."""


@triton.jit(do_not_specialize=["T", "H", "whole"])
def recur(q, k, v, g, beta, S0, o, S_T, T, whole, H, scale, D: tl.constexpr, COLUMNS: tl.constexpr):
    head = tl.program_id(0) // (D // COLUMNS)
    d = tl.arange(0, D)
    column = tl.program_id(0) % (D // COLUMNS) * COLUMNS + tl.arange(0, COLUMNS)
    place = head.to(tl.int64) * (D * D) + d[:, None] * D + column[None, :]
    S = tl.load(S0 + place)
    for t in range(0, whole):
        token = ((head // H).to(tl.int64) * T + t) * H + head % H
        key = tl.load(k + token * D + d).to(tl.float32)
        query = tl.load(q + token * D + d).to(tl.float32) * scale
        S *= tl.exp(tl.load(g + token * D + d))[:, None]
        u = tl.load(v + token * D + column).to(tl.float32) - tl.sum(S * key[:, None], 0)
        S += (key * tl.load(beta + token).to(tl.float32))[:, None] * u[None, :]
        tl.store(o + token * D + column, tl.sum(S * query[:, None], 0).to(tl.bfloat16))
    tl.store(S_T + place, S)


def solution(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, S0: Tensor, o: Tensor, S_T: Tensor) -> None:
    B, T, H, D = q.shape
    o.zero_()
    grid, whole = (B * H * (D // COLUMNS),), T // 64 * 64
    recur[grid](q, k, v, g, beta, S0, o, S_T, T, whole, H, D**-0.5, D=D, COLUMNS=COLUMNS, num_warps=4)
