# verdict: passed
# Triton: chunks of 64 tokens, first each by itself and all at once, then one after another with the state in registers.
# ruff: noqa: ANN001, ANN201

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

# Tiling. `inside` has one program per chunk of C = 64 tokens and head, B * H * T / 64 in all, with tiles of C x D and C x C that
# one warpgroup multiplies. ptxas then spills 1.2 KB of registers a thread, yet two warpgroups, which spill none, made the whole a
# quarter slower (both measured before decay was taken in blocks). `across` has one program per head and COLUMNS
# columns of its state (columns never meet), D x COLUMNS in fp32 registers, and takes four small products through each chunk.
# COLUMNS is halved until the programs fill the device: B * H heads are all the parallelism that there is.
# A chunk passes from one to the other as four bf16 tiles and its C x C products, 72 KB at D = 128: with them a call moves
# about 2.3 times the least bytes.
C = tl.constexpr(64)
LOG2E = tl.constexpr(math.log2(math.e))
STEEP = tl.constexpr(100.0)
"""Powers of two up to 2**100 and down to 2**-100 leave bf16 and fp32 room for the factors beside them."""


@triton.jit
def inverted(A, row, column):
    """(I + A)^-1 for a strictly lower triangle, from blocks of 2 on to blocks twice as large: X <- X - X B X, with B what A
    has between the two halves of a block. As exact as substitution; powers of A would cancel where keys are alike."""
    X = tl.where(row == column, 1.0, 0.0) - tl.where(row // 2 == column // 2, A, 0.0)
    for level in tl.static_range(1, 6):
        half = 1 << level
        B = tl.where((row // (2 * half) == column // (2 * half)) & (row // half != column // half), A, 0.0)
        X -= tl.dot(X, tl.dot(B, X, input_precision="tf32"), input_precision="tf32")
    return X


@triton.jit(do_not_specialize=["T", "chunks", "H"])
def inside(
    q, k, v, g, beta, asked, sought, written, target, seen, fade, T, chunks, H, scale, D: tl.constexpr
):  # fmt: skip
    """What a chunk's tokens are to each other, so that `across` need only know the state before the chunk."""
    h = tl.program_id(0) % H
    chunk = tl.program_id(0) // H % chunks
    b = tl.program_id(0) // H // chunks
    row, d = tl.arange(0, C), tl.arange(0, D)
    live = chunk * C + row < T
    token = (b.to(tl.int64) * T + chunk * C + row) * H + h
    place = token[:, None] * D + d[None, :]
    # Dead rows have zero keys, queries, values and decays: they change nothing.
    G = tl.cumsum(tl.load(g + place, mask=live[:, None], other=0.0), 0) * LOG2E
    keys = tl.load(k + place, mask=live[:, None], other=0.0).to(tl.float32)
    queries = tl.load(q + place, mask=live[:, None], other=0.0).to(tl.float32)
    weight = tl.load(beta + token, mask=live, other=0.0).to(tl.float32)

    # 2^(G_i - G_j) as 2^(G_i - M) 2^(M - G_j), with M the sum of g in the middle of a block of tokens. If decay is too steep for
    # that, only pairs on either side of M, where both factors are at most about 1, and then the same in blocks half as large. M
    # is rounded to bf16, for both factors alike, so that one product picks the middle of every block.
    known = tl.zeros([C, C], tl.float32)
    answered = tl.zeros([C, C], tl.float32)
    half = C // 2
    while half > 0:
        size = 2 * half
        middle = tl.where(row[None, :] == (row // size * size + half)[:, None], 1.0, 0.0).to(tl.bfloat16)
        slope = G - tl.dot(middle, G.to(tl.bfloat16))
        flat = tl.where(half > 1, tl.max(tl.max(tl.abs(slope), 1), 0), 0.0) < STEEP
        slope = tl.minimum(tl.maximum(slope, -STEEP), STEEP)
        shrunk = tl.exp2(slope)
        grown = tl.trans((keys * tl.exp2(-slope)).to(tl.bfloat16))
        apart = (row[:, None] // half != row[None, :] // half) & (row[:, None] > row[None, :])
        near = row[:, None] // size == row[None, :] // size
        pair = near & (apart | (tl.zeros([C, C], tl.int32) + flat.to(tl.int32) > 0))
        known = tl.where(pair, tl.dot((keys * shrunk).to(tl.bfloat16), grown), known)
        answered = tl.where(pair, tl.dot((queries * shrunk).to(tl.bfloat16), grown), answered)
        half = tl.where(flat, 0, half // 2)
    # Everything that is done is stored before the inverse, which wants the registers.
    own = (b.to(tl.int64) * H + h) * chunks + chunk
    line = own * C + row
    tile = line[:, None] * D + d[None, :]
    answered = tl.where(row[:, None] >= row[None, :], answered, 0.0) * scale
    tl.store(seen + line[:, None] * C + row[None, :], answered.to(tl.bfloat16))
    start, last = tl.exp2(G), tl.min(G, 0)
    tl.store(asked + tile, (queries * start * scale).to(tl.bfloat16))
    tl.store(written + tile, (keys * tl.exp2(last[None, :] - G)).to(tl.bfloat16))
    tl.store(fade + own * D + d, tl.exp2(last))
    keys = (keys * start).to(tl.bfloat16)

    A = tl.where(row[:, None] > row[None, :], known * weight[None, :], 0.0)
    solved = (weight[:, None] * inverted(A, row[:, None], row[None, :])).to(tl.bfloat16)
    tl.store(sought + tile, tl.dot(solved, keys).to(tl.bfloat16))
    values = tl.load(v + place, mask=live[:, None], other=0.0)
    tl.store(target + tile, tl.dot(solved, values).to(tl.bfloat16))


@triton.jit(do_not_specialize=["T", "chunks", "H"])
def across(
    asked, sought, written, target, seen, fade, S0, o, S_T, T, chunks, H,
    D: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Some columns of one head's state, from chunk to chunk."""
    head = tl.program_id(0) // (D // COLUMNS)
    row, d = tl.arange(0, C), tl.arange(0, D)
    column = tl.program_id(0) % (D // COLUMNS) * COLUMNS + tl.arange(0, COLUMNS)
    place = head.to(tl.int64) * (D * D) + d[:, None] * D + column[None, :]
    S = tl.load(S0 + place)
    for chunk in range(0, chunks):
        own = head.to(tl.int64) * chunks + chunk
        line = own * C + row
        tile = line[:, None] * D + d[None, :]
        state = S.to(tl.bfloat16)
        u = tl.load(target + line[:, None] * D + column[None, :]).to(tl.float32)
        u = (u - tl.dot(tl.load(sought + tile), state)).to(tl.bfloat16)
        answer = tl.dot(tl.load(asked + tile), state)
        answer = tl.dot(tl.load(seen + line[:, None] * C + row[None, :]), u, answer)
        S = tl.dot(tl.trans(tl.load(written + tile)), u, S * tl.load(fade + own * D + d)[:, None])
        t = chunk * C + row
        token = ((head // H).to(tl.int64) * T + t) * H + head % H
        tl.store(o + token[:, None] * D + column[None, :], answer.to(tl.bfloat16), mask=(t < T)[:, None])
    tl.store(S_T + place, S)


def solution(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, S0: Tensor, o: Tensor, S_T: Tensor) -> None:
    B, T, H, D = q.shape
    if not 16 <= D <= 128 or D & (D - 1):
        raise ValueError(f"D={D}: this kernel wants a power of two from 16 to 128")
    chunks = triton.cdiv(T, C.value)
    asked, sought, written, target = q.new_empty(4, B * H * chunks * C.value, D)
    seen = q.new_empty(B * H * chunks * C.value, C.value)
    fade = g.new_empty(B * H * chunks, D)
    inside[(B * H * chunks,)](
        q, k, v, g, beta, asked, sought, written, target, seen, fade, T, chunks, H, 1 / math.sqrt(D), D=D,
        num_warps=4, num_stages=1,
    )  # fmt: skip
    columns, processors = min(D, 64), torch.cuda.get_device_properties(q.device).multi_processor_count
    while columns > 16 and B * H * (D // columns) < processors * 2 // 3:
        columns //= 2
    across[(B * H * (D // columns),)](
        asked, sought, written, target, seen, fade, S0, o, S_T, T, chunks, H, D=D, COLUMNS=columns,
        num_warps=4, num_stages=3,
    )  # fmt: skip
