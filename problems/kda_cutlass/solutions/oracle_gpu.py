# verdict: passed
# Triton: chunks of 64 tokens, first each by itself and all at once, then one after another with the state in registers.
# ruff: noqa: ANN001, ANN201

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

# Tiling. A program of `flat` or `steep` has one chunk of C = 64 tokens of one head; there are B * H * T / 64. It goes through D
# in parts of channels: a whole tile of C x D takes so many registers that they spill. `flat` does every chunk whose decay one
# product can hold, three quarters of the public ones, with few registers and so with more programs on a multiprocessor. `steep`
# does the rest. `across` has one program per head and COLUMNS columns of its state (columns never meet), D x COLUMNS in fp32
# registers, and takes four small products through each chunk. COLUMNS is halved until the programs fill the device: B * H heads
# are all the parallelism there is. A chunk passes to `across` as four bf16 tiles and its C x C products, 72 KB at D=128.
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


@triton.jit
def mine(T, chunks, H):
    """A program's chunk: its rows, which of them are tokens, where these lie, and the chunk's number."""
    h = tl.program_id(0) % H
    chunk = tl.program_id(0) // H % chunks
    b = tl.program_id(0) // H // chunks
    row = tl.arange(0, C)
    live = chunk * C + row < T
    token = (b.to(tl.int64) * T + chunk * C + row) * H + h
    own = (b.to(tl.int64) * H + h) * chunks + chunk
    return row, live, token, own


@triton.jit
def finish(known, answered, v, beta, seen, sought, target, token, live, own, row, scale, D: tl.constexpr):
    """From the products of a chunk's tokens, what its queries find in the chunk itself, and what its tokens write: (I + A)^-1
    times the weighted values, and times the weighted keys, which `across` multiplies with the state."""
    line = own * C + row
    answered = tl.where(row[:, None] >= row[None, :], answered, 0.0) * scale
    tl.store(seen + line[:, None] * C + row[None, :], answered.to(tl.bfloat16))
    weight = tl.load(beta + token, mask=live, other=0.0).to(tl.float32)
    A = tl.where(row[:, None] > row[None, :], known * weight[None, :], 0.0)
    solved = (weight[:, None] * inverted(A, row[:, None], row[None, :])).to(tl.bfloat16)
    part: tl.constexpr = 64 if D > 64 else D
    for first in tl.range(0, D, part):
        d = first + tl.arange(0, part)
        tile = line[:, None] * D + d[None, :]
        values = tl.load(v + token[:, None] * D + d[None, :], mask=live[:, None], other=0.0)
        tl.store(target + tile, tl.dot(solved, values).to(tl.bfloat16))
        keys = tl.load(sought + tile)
        tl.store(sought + tile, tl.dot(solved, keys).to(tl.bfloat16))


@triton.jit(do_not_specialize=["T", "chunks", "H"])
def flat(
    q, k, v, g, beta, asked, sought, written, target, seen, fade, left, T, chunks, H, scale, D: tl.constexpr
):  # fmt: skip
    """Stores the tiles of every chunk, and finishes those whose decay is flat; `left` says which are left to `steep`."""
    row, live, token, own = mine(T, chunks, H)
    known = tl.zeros([C, C], tl.float32)
    answered = tl.zeros([C, C], tl.float32)
    steepest = 0.0
    part: tl.constexpr = 32 if D > 32 else D
    for first in tl.range(0, D, part):
        d = first + tl.arange(0, part)
        place = token[:, None] * D + d[None, :]
        tile = (own * C + row)[:, None] * D + d[None, :]
        # Dead rows have zero keys, queries, values and decays: they change nothing.
        G = tl.cumsum(tl.load(g + place, mask=live[:, None], other=0.0), 0) * LOG2E
        # 2^(G_i - G_j) as 2^(G_i - M) 2^(M - G_j), with M the sum of g in the middle of the chunk.
        M = tl.sum(tl.where(row[:, None] == C // 2, G, 0.0), 0)
        last = tl.min(G, 0)
        steepest = tl.maximum(steepest, tl.max(tl.maximum(-M, M - last), 0))
        keys = tl.load(k + place, mask=live[:, None], other=0.0).to(tl.float32)
        shrunk, start = tl.exp2(G - M[None, :]), tl.exp2(G)
        grown = tl.trans((keys * tl.exp2(M[None, :] - G)).to(tl.bfloat16))
        known = tl.dot((keys * shrunk).to(tl.bfloat16), grown, known)
        tl.store(written + tile, (keys * tl.exp2(last[None, :] - G)).to(tl.bfloat16))
        tl.store(sought + tile, (keys * start).to(tl.bfloat16))
        tl.store(fade + own * D + d, tl.exp2(last))
        queries = tl.load(q + place, mask=live[:, None], other=0.0).to(tl.float32)
        answered = tl.dot((queries * shrunk).to(tl.bfloat16), grown, answered)
        tl.store(asked + tile, (queries * start * scale).to(tl.bfloat16))
    tl.store(left + own, (steepest >= STEEP).to(tl.int8))
    if steepest < STEEP:
        tl.debug_barrier()  # `finish` reads what was stored
        finish(known, answered, v, beta, seen, sought, target, token, live, own, row, scale, D)


@triton.jit(do_not_specialize=["T", "chunks", "H"])
def steep(
    q, k, v, g, beta, sought, target, seen, left, T, chunks, H, scale, D: tl.constexpr
):  # fmt: skip
    """Finishes the chunks that `flat` left."""
    row, live, token, own = mine(T, chunks, H)
    if tl.load(left + own) == 0:
        return
    known = tl.zeros([C, C], tl.float32)
    answered = tl.zeros([C, C], tl.float32)
    part: tl.constexpr = 64 if D > 64 else D
    for first in tl.range(0, D, part):
        d = first + tl.arange(0, part)
        place = token[:, None] * D + d[None, :]
        G = tl.cumsum(tl.load(g + place, mask=live[:, None], other=0.0), 0) * LOG2E
        keys = tl.load(k + place, mask=live[:, None], other=0.0).to(tl.float32)
        queries = tl.load(q + place, mask=live[:, None], other=0.0).to(tl.float32)
        # As in `flat`, but only pairs on either side of M, where both factors are at most about 1; then the same in blocks of
        # tokens half as large, until decay is flat in all of them. M is rounded to bf16, for both factors alike, so that one
        # product picks the middle of every block.
        half = C // 2
        while half > 0:
            size = 2 * half
            middle = tl.where(row[None, :] == (row // size * size + half)[:, None], 1.0, 0.0).to(tl.bfloat16)
            slope = G - tl.dot(middle, G.to(tl.bfloat16))
            level = tl.where(half > 1, tl.max(tl.max(tl.abs(slope), 1), 0), 0.0) < STEEP
            slope = tl.minimum(tl.maximum(slope, -STEEP), STEEP)
            shrunk = tl.exp2(slope)
            grown = tl.trans((keys * tl.exp2(-slope)).to(tl.bfloat16))
            apart = (row[:, None] // half != row[None, :] // half) & (row[:, None] > row[None, :])
            near = row[:, None] // size == row[None, :] // size
            pair = near & (apart | (tl.zeros([C, C], tl.int32) + level.to(tl.int32) > 0))
            known += tl.where(pair, tl.dot((keys * shrunk).to(tl.bfloat16), grown), 0.0)
            answered += tl.where(pair, tl.dot((queries * shrunk).to(tl.bfloat16), grown), 0.0)
            half = tl.where(level, 0, half // 2)
    finish(known, answered, v, beta, seen, sought, target, token, live, own, row, scale, D)


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
    left = torch.empty(B * H * chunks, dtype=torch.int8, device=q.device)
    grid, sizes = (B * H * chunks,), (T, chunks, H, 1 / math.sqrt(D))
    flat[grid](
        q, k, v, g, beta, asked, sought, written, target, seen, fade, left, *sizes, D=D, num_warps=4, num_stages=1, maxnreg=168
    )
    steep[grid](q, k, v, g, beta, sought, target, seen, left, *sizes, D=D, num_warps=4, num_stages=1)
    columns, processors = min(D, 64), torch.cuda.get_device_properties(q.device).multi_processor_count
    while columns > 16 and B * H * (D // columns) < processors * 2 // 3:
        columns //= 2
    across[(B * H * (D // columns),)](
        asked, sought, written, target, seen, fade, S0, o, S_T, T, chunks, H, D=D, COLUMNS=columns,
        num_warps=4, num_stages=3,
    )  # fmt: skip
