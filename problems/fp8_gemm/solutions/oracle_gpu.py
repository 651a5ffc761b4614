# verdict: passed
# Triton: e4m3 tiles go by TMA from memory to the fp8 tensor cores; few rows of x meet the weights the other way round.
# ruff: noqa: ANN001, ANN201

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

FEW_ROWS = 64
"""Up to as many rows of x it is the bytes of w that take time."""


def fit(arguments: dict[str, Any], parts: int) -> None:
    """Before a launch: what TMA moves at a time is a tile of this configuration, and of y one of so many parts."""
    rows, columns, deep = (arguments[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    arguments["x"].block_shape = [rows, deep]
    arguments["w"].block_shape = [columns, deep]
    arguments["y"].block_shape = [rows, columns // parts]


def config(parts: int, num_warps: int, num_stages: int, **sizes: int) -> triton.Config:
    """Tiles 128 values deep, as many bytes as shared memory swizzles together."""
    return triton.Config(
        {"BLOCK_K": 128, **sizes}, num_warps=num_warps, num_stages=num_stages, pre_hook=partial(fit, parts=parts)
    )


# The sums of 128 x 256 take 128 registers in each of 256 threads; four stages of 48 KB, and half a tile of bf16 on its way out,
# fill the shared memory. FLATTEN lets the loads of the next tile run while this one is scaled and stored. Of 128 x 128 two fit,
# and one multiplies while the other stores, but they read a third more. What is left for the last round counts as well: 4095 x
# 4104 is 544 tiles of 128 x 256, but 528 of 256 x 128, which is 4 rounds of an H200's 132 multiprocessors.
MANY = [
    config(2, 8, 4, BLOCK_M=128, BLOCK_N=256, FLATTEN=True),
    config(2, 8, 4, BLOCK_M=128, BLOCK_N=256, FLATTEN=False),
    config(2, 8, 4, BLOCK_M=256, BLOCK_N=128, FLATTEN=True),
    config(2, 4, 3, BLOCK_M=128, BLOCK_N=128, FLATTEN=False),
]
# 28672 rows of w are 224 or 448 tiles. Two programs of 100 KB or four of 48 KB fit a multiprocessor, so all run at once, each
# with as many bytes on their way: none is left for a second round, and no sum has to be shared out along K.
FEW = [config(1, 4, 5, BLOCK_N=128), config(1, 4, 4, BLOCK_N=64)]


@triton.autotune(MANY, key=["M", "N", "K"])
@triton.jit(do_not_specialize=["M", "N", "K"])
def many(
    x, w, y, sx, sw, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, FLATTEN: tl.constexpr, BAND: tl.constexpr = 8,
):  # fmt: skip
    """Tiles of y, one after another in each program. Outside of x and w TMA reads zeros, outside of y it writes nothing.

    BAND rows of tiles are gone through column by column, so that programs that run together share what they read.
    """
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    for tile in tl.range(tl.program_id(0), down * across, tl.num_programs(0), flatten=FLATTEN):
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


@triton.autotune(FEW, key=["M", "N", "K"])
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


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    (M, K), N = x.shape, len(w)
    if K % 16 or N % 8:
        raise ValueError(f"K={K}, N={N}: the tensor memory accelerator wants rows of whole 16 bytes")
    boxes = [TensorDescriptor.from_tensor(tensor, [1, 1]) for tensor in (x, w, y)]
    if M <= FEW_ROWS:
        few[lambda chosen: (triton.cdiv(N, chosen["BLOCK_N"]),)](
            *boxes, sx, sw, M, N, K, BLOCK_M=max(16, triton.next_power_of_2(M))
        )
        return
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count

    def programs(chosen: dict[str, Any]) -> tuple[int]:
        """As many as fit at once, which is 128 x 256 sums to a multiprocessor."""
        rows, columns = chosen["BLOCK_M"], chosen["BLOCK_N"]
        return (min(triton.cdiv(M, rows) * triton.cdiv(N, columns), processors * (128 * 256) // (rows * columns)),)

    many[programs](*boxes, sx, sw, M, N, K)
