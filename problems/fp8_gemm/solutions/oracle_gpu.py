# verdict: passed
# Triton: e4m3 tiles go by TMA from memory to the fp8 tensor cores; few rows of x meet the weights the other way round.
# ruff: noqa: ANN001, ANN201

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

DEEP = 128
"""Values of a row in a tile: as many bytes as shared memory swizzles together."""
FEW_ROWS, FEW_COLUMNS, FEW = 64, 128, {"num_warps": 4, "num_stages": 5}
"""Up to as many rows of x it is the bytes of w that take time. Two programs of 100 KB fit a multiprocessor, and 128256 rows of w
are 1002 tiles, four rounds of an H100's 264 programs: no sum has to be shared out along K."""
TILES, MANY = ((128, 256), (256, 128)), {"num_warps": 8, "num_stages": 4}
"""The sums of either take 128 registers in each of 256 threads; four stages of 48 KB and half a tile of bf16 on its way out fill
the shared memory. The loop over tiles is flattened: the loads of the next one run while this one is scaled and stored."""


@triton.jit(do_not_specialize=["M", "N", "K"])
def many(
    x, w, y, sx, sw, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BAND: tl.constexpr = 8,
):  # fmt: skip
    """Tiles of y, one after another in each program. Outside of x and w TMA reads zeros, outside of y it writes nothing.

    BAND rows of tiles are gone through column by column, so that programs that run together share what they read.
    """
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    for tile in tl.range(tl.program_id(0), down * across, tl.num_programs(0), flatten=True):
        first = tile // (BAND * across) * BAND
        inside = tile % (BAND * across)
        height = tl.minimum(down - first, BAND)
        m0, n0 = (first + inside % height) * BLOCK_M, inside // height * BLOCK_N
        acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        for step in range(steps):
            acc = tl.dot(x.load([m0, step * BLOCK_K]), w.load([n0, step * BLOCK_K]).T, acc)
        m, n = m0 + tl.arange(0, BLOCK_M), n0 + tl.arange(0, BLOCK_N)
        acc *= tl.load(sx + m, mask=m < M, other=0.0)[:, None]
        acc *= tl.load(sw + n, mask=n < N, other=0.0)[None, :]
        left, right = tl.split(tl.permute(tl.reshape(acc, [BLOCK_M, 2, BLOCK_N // 2]), [0, 2, 1]))
        y.store([m0, n0], left.to(tl.bfloat16))
        y.store([m0, n0 + BLOCK_N // 2], right.to(tl.bfloat16))


@triton.jit(do_not_specialize=["M", "N", "K"])
def few(x, w, y, sx, sw, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """BLOCK_N rows of w times all rows of x. w is the left factor: on Hopper that one has 64 rows at least, the right one 8."""
    n0 = tl.program_id(0) * BLOCK_N
    acc = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        acc = tl.dot(w.load([n0, step * BLOCK_K]), x.load([0, step * BLOCK_K]).T, acc)
    m, n = tl.arange(0, BLOCK_M), n0 + tl.arange(0, BLOCK_N)
    acc *= tl.load(sx + m, mask=m < M, other=0.0)[None, :]
    acc *= tl.load(sw + n, mask=n < N, other=0.0)[:, None]
    y.store([0, n0], acc.T.to(tl.bfloat16))


def described(x: Tensor, w: Tensor, y: Tensor, rows: int, columns: int, parts: int) -> list[TensorDescriptor]:
    """What TMA moves at a time: a tile of x, of w, and of y one of so many parts."""
    boxes = ((x, [rows, DEEP]), (w, [columns, DEEP]), (y, [rows, columns // parts]))
    return [TensorDescriptor.from_tensor(*box) for box in boxes]


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    (M, K), N = x.shape, len(w)
    if K % 16 or N % 8:
        raise ValueError(f"K={K}, N={N}: the tensor memory accelerator wants rows of whole 16 bytes")
    if M <= FEW_ROWS:
        rows = max(16, triton.next_power_of_2(M))
        few[(triton.cdiv(N, FEW_COLUMNS),)](
            *described(x, w, y, rows, FEW_COLUMNS, 1), sx, sw, M, N, K,
            BLOCK_M=rows, BLOCK_N=FEW_COLUMNS, BLOCK_K=DEEP, **FEW,
        )  # fmt: skip
        return
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count

    def tiles(sizes: tuple[int, int]) -> int:
        return triton.cdiv(M, sizes[0]) * triton.cdiv(N, sizes[1])

    # What is left for the last round counts: 4095 x 4104, say, is 544 tiles of 128 x 256, five rounds of an H200's 132
    # multiprocessors, but 528 of 256 x 128, which is four.
    rows, columns = min(TILES, key=lambda sizes: triton.cdiv(tiles(sizes), processors))
    many[(min(tiles((rows, columns)), processors),)](
        *described(x, w, y, rows, columns, 2), sx, sw, M, N, K,
        BLOCK_M=rows, BLOCK_N=columns, BLOCK_K=DEEP, **MANY,
    )  # fmt: skip
