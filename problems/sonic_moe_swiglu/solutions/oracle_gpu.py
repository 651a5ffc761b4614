# verdict: passed
# Triton: one tile of one expert's rows per program, gate and up side by side; tokens are gathered straight into shared memory.
# ruff: noqa: ANN001, ANN201, E741

import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

# Many rows per expert: 128 rows by 128 columns of both gate and up, so eight warps hold 128 x 256 sums, 128 registers a thread,
# and three stages of 16 + 2 * 16 KB; a fourth, for which there is room, made it slower (measured). Few rows: the weights' bytes
# are what takes time. Then 64 rows (the least of a warp group's product) by 64 columns, and several programs of three stages of
# 24 KB, whose loads keep memory busy.
LARGE = {"BLOCK_R": 128, "BLOCK_I": 128, "BLOCK_H": 64, "num_warps": 8, "num_stages": 3}
SMALL = {"BLOCK_R": 64, "BLOCK_I": 64, "BLOCK_H": 64, "num_warps": 4, "num_stages": 3}
MANY_ROWS = 64
"""Mean rows per expert from which on tiles are large."""


@triton.jit
def experts(
    x, tok, off, weights, out,
    E: tl.constexpr, H: tl.constexpr, I: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_H: tl.constexpr, MOST_E: tl.constexpr,
):  # fmt: skip
    """One tile. The experts' tiles follow each other; how many there are stands in `off`, so the grid is an upper bound."""
    COLUMNS: tl.constexpr = (I + BLOCK_I - 1) // BLOCK_I
    index = tl.arange(0, MOST_E)
    begins = tl.load(off + index, mask=index < E, other=0)
    ends = tl.load(off + index + 1, mask=index < E, other=0)
    last = tl.cumsum((ends - begins + BLOCK_R - 1) // BLOCK_R, 0) * COLUMNS
    program = tl.program_id(0)
    if program >= tl.max(last, 0):
        return
    e = tl.sum((last <= program).to(tl.int32), 0)
    begin, end = tl.load(off + e), tl.load(off + e + 1)
    tiles = (end - begin + BLOCK_R - 1) // BLOCK_R
    # Rows vary fastest: programs that run together share their weights, and all tokens of an expert fit into the L2 cache.
    tile = program - (tl.sum(tl.where(index == e, last, 0), 0) - tiles * COLUMNS)
    row = begin + (tile % tiles) * BLOCK_R + tl.arange(0, BLOCK_R)
    column = (tile // tiles) * BLOCK_I
    real = row < end

    token = tl.load(tok + row, mask=real, other=0).to(tl.int64)
    h = tl.arange(0, BLOCK_H)
    at = x + token[:, None] * H + h[None, :]
    gate_row = e * (2 * I) + column
    gate = tl.zeros([BLOCK_R, BLOCK_I], tl.float32)
    up = tl.zeros([BLOCK_R, BLOCK_I], tl.float32)
    for start in range(0, H, BLOCK_H):
        # Rows of weights beyond a tile's columns belong to others: what they give is not stored. Beyond H both sides are zero.
        tokens = tl.load(at + start, mask=real[:, None] & (start + h < H)[None, :], other=0.0)
        gate = tl.dot(tokens, weights.load([gate_row, start]).T, gate)
        up = tl.dot(tokens, weights.load([gate_row + I, start]).T, up)

    i = column + tl.arange(0, BLOCK_I)
    # Of a gate far below zero the exponential is infinite and the quotient zero, as it should be.
    result = gate / (1 + tl.exp(-gate)) * up
    to = out + row.to(tl.int64)[:, None] * I + i[None, :]
    tl.store(to, result.to(out.dtype.element_ty), mask=real[:, None] & (i < I)[None, :])


def solution(x: Tensor, tok: Tensor, off: Tensor, W: Tensor, out: Tensor) -> None:
    (E, twice, H), R = W.shape, len(tok)
    I = twice // 2
    if H % 8:
        raise ValueError(f"H={H}: the tensor memory accelerator wants rows of whole 16 bytes")
    tile = LARGE if R >= MANY_ROWS * E else SMALL
    weights = TensorDescriptor.from_tensor(W.view(E * twice, H), [tile["BLOCK_I"], tile["BLOCK_H"]])
    # Every expert that has rows may end with a tile that is not full.
    most_tiles = R // tile["BLOCK_R"] + min(E, R)
    grid = (most_tiles * triton.cdiv(I, tile["BLOCK_I"]),)
    experts[grid](x, tok, off, weights, out, E=E, H=H, I=I, MOST_E=triton.next_power_of_2(E), **tile)
