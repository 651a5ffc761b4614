# verdict: passed
# Triton: the tokens of all sequences are shared out evenly over the multiprocessors; a second kernel joins the parts.
# ruff: noqa: ANN001, ANN201

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS_PER_SM = 6
"""Two or three fit at a time: the rest even out multiprocessors of unequal distance to memory."""


@triton.jit
def last_tiles(lens, B, BLOCK_T: tl.constexpr, MOST_B: tl.constexpr):
    """All sequences one after the other, cut into tiles of BLOCK_T tokens: for each, the number of its last tile plus 1."""
    index = tl.arange(0, MOST_B)
    lengths = tl.load(lens + index, mask=index < B, other=0)
    return index, tl.cumsum((lengths + BLOCK_T - 1) // BLOCK_T, 0)


@triton.jit(do_not_specialize=["B", "columns", "splits"])
def attend(
    q, kv, table, lens, parts, weights, B, columns, splits, scale,
    HQ: tl.constexpr, HKV: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_T: tl.constexpr, MOST_B: tl.constexpr,
):  # fmt: skip
    """One share of the tiles for one key/value head. What it finds for sequence b goes to slot `split + b`.

    In the order of the tiles every further slot has a larger split or a larger b, so no two share one.
    """
    # Heads vary fastest: programs that run together read the same pages, whose rows lie side by side.
    head = tl.program_id(0) % HKV
    split = tl.program_id(0) // HKV
    index, last = last_tiles(lens, B, BLOCK_T, MOST_B)
    total = tl.max(last, 0)
    splits = tl.minimum(splits, total)
    tile = split * total // splits
    end = tl.minimum((split + 1) * total // splits, total)
    b = tl.sum((last <= tile).to(tl.int32), 0)

    G: tl.constexpr = HQ // HKV
    group = tl.arange(0, ROWS)
    real = group < G
    d = tl.arange(0, D)
    t = tl.arange(0, BLOCK_T)
    TOKEN: tl.constexpr = HKV * D
    while tile < end:
        length = tl.load(lens + b)
        after = tl.sum(tl.where(index == b, last, 0), 0)
        first = after - (length + BLOCK_T - 1) // BLOCK_T
        stop = tl.minimum(end, after)
        rows = b.to(tl.int64) * HQ + head * G + group
        query = tl.load(q + rows[:, None] * D + d[None, :], mask=real[:, None], other=0.0)
        top = tl.full([ROWS], float("-inf"), tl.float32)
        mass = tl.zeros([ROWS], tl.float32)
        acc = tl.zeros([ROWS, D], tl.float32)
        pages = table + b.to(tl.int64) * columns
        for start in range((tile - first) * BLOCK_T, (stop - first) * BLOCK_T, BLOCK_T):
            token = start + t
            live = token < length
            page = tl.load(pages + token // PAGE, mask=live, other=0).to(tl.int64)
            row = page * (2 * PAGE * TOKEN) + (token % PAGE) * TOKEN + head * D
            k = tl.load(kv + row[:, None] + d[None, :], mask=live[:, None], other=0.0)
            scores = tl.where(live[None, :], tl.dot(query, tl.trans(k)) * scale, float("-inf"))
            new = tl.maximum(top, tl.max(scores, 1))
            keep = tl.exp2(top - new)
            p = tl.exp2(scores - new[:, None])
            mass = mass * keep + tl.sum(p, 1)
            v = tl.load(kv + PAGE * TOKEN + row[:, None] + d[None, :], mask=live[:, None], other=0.0)
            acc = tl.dot(p.to(v.dtype), v, acc * keep[:, None])
            top = new
        slots = (split + b).to(tl.int64) * HQ + head * G + group
        tl.store(parts + slots[:, None] * D + d[None, :], acc / mass[:, None], mask=real[:, None])
        tl.store(weights + slots, top + tl.log2(mass), mask=real)
        tile = stop
        b += 1


@triton.jit(do_not_specialize=["B", "splits"])
def combine(
    parts, weights, lens, out, B, splits,
    HQ: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, MOST_B: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """One query head of one sequence: the mean of its parts, weighted by their shares of the softmax's denominator."""
    head = tl.program_id(0) % HQ
    b = tl.program_id(0) // HQ
    index, last = last_tiles(lens, B, BLOCK_T, MOST_B)
    total = tl.max(last, 0)
    splits = tl.minimum(splits, total)
    after = tl.sum(tl.where(index == b, last, 0), 0)
    first = after - (tl.load(lens + b) + BLOCK_T - 1) // BLOCK_T
    # Split s has the tiles from s * total // splits on, so these two have the sequence's first and last.
    begin = ((first + 1) * splits - 1) // total
    end = (after * splits - 1) // total + 1
    d = tl.arange(0, D)
    top = float("-inf")
    mass = 0.0
    acc = tl.zeros([D], tl.float32)
    for start in range(begin, end, BLOCK_S):
        split = start + tl.arange(0, BLOCK_S)
        live = split < end
        slot = (split + b).to(tl.int64) * HQ + head
        weight = tl.load(weights + slot, mask=live, other=float("-inf"))
        part = tl.load(parts + slot[:, None] * D + d[None, :], mask=live[:, None], other=0.0)
        new = tl.maximum(top, tl.max(weight, 0))
        keep = tl.exp2(top - new)
        share = tl.exp2(weight - new)
        mass = mass * keep + tl.sum(share, 0)
        acc = acc * keep + tl.sum(share[:, None] * part, 0)
        top = new
    tl.store(out + tl.program_id(0) * D + d, acc / mass)


def solution(q: Tensor, kv: Tensor, block_table: Tensor, seq_lens: Tensor, out: Tensor) -> None:
    B, Hq, D = q.shape
    page, Hkv = kv.shape[2:4]
    if D < 16 or D & (D - 1):
        raise ValueError(f"D={D}: this kernel wants a power of two, at least 16")
    # Tiles of 16 KB for keys and for values: with three stages of both, two programs fill a multiprocessor.
    block = {"BLOCK_T": max(16, min(128, 8192 // D)), "MOST_B": triton.next_power_of_2(B)}
    splits = max(1, PROGRAMS_PER_SM * torch.cuda.get_device_properties(q.device).multi_processor_count // Hkv)
    # As many slots as the largest split plus the largest b may need, whatever the lengths are: they stay on the device.
    parts = torch.empty((splits + B, Hq, D), dtype=torch.float32, device=q.device)
    weights = torch.empty((splits + B, Hq), dtype=torch.float32, device=q.device)
    attend[(splits * Hkv,)](
        q, kv, block_table, seq_lens, parts, weights, B, block_table.shape[1], splits, math.log2(math.e) / math.sqrt(D),
        HQ=Hq, HKV=Hkv, D=D, PAGE=page, ROWS=max(16, triton.next_power_of_2(Hq // Hkv)), **block, num_warps=4, num_stages=5,
    )  # fmt: skip
    combine[(B * Hq,)](parts, weights, seq_lens, out, B, splits, HQ=Hq, D=D, **block, BLOCK_S=32, num_warps=4)
