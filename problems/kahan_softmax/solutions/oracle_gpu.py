# verdict: passed
# Triton: every row is read once and written once, its parts held in the registers of programs that tell each other their sums.
# ruff: noqa: ANN001, ANN201

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

# A program holds up to 16384 elements, 32 to a thread, or 64 where rows are no whole 16 bytes. A longer row is shared by several
# programs of 8192: each writes down the maximum and the sum of its part, waits until all of its row have, and puts them together
# itself. Nothing is read twice.
WHOLE, PART = 16384, 8192


@triton.jit
def add(a_high, a_low, b_high, b_low):
    """Sum of two pairs of fp32 numbers, of which nothing is lost but what low + low loses."""
    s = a_high + b_high
    t = s - a_high
    return s, a_low + b_low + ((a_high - (s - t)) + (b_high - t))


@triton.jit
def lift(m, most):
    """e^(m - most), by which a part's sum and its elements are multiplied alike. Of a part of -inf it is 0."""
    return tl.exp(m - most)


@triton.jit
def softmax(
    x, y, counters, stats, V, PARTS: tl.constexpr, PARTS_UP: tl.constexpr, BLOCK: tl.constexpr, WAIT: tl.constexpr
):  # fmt: skip
    """One part of one row. `counters` (1 + R) are zeros, `stats` (R, PARTS, 3) is for each part's maximum and sum, a pair."""
    # Programs number themselves as they start. So those before them run already, and only the last row's can wait for some that
    # do not: they are fewer than the device holds at once, hence those start too.
    ticket = tl.program_id(0)
    if PARTS > 1:
        ticket = tl.atomic_add(counters, 1, sem="relaxed")
    row = ticket // PARTS
    part = ticket % PARTS
    column = part * BLOCK + tl.arange(0, BLOCK)
    start = row.to(tl.int64) * V
    logits = tl.load(x + start + column, mask=column < V, other=-float("inf"), eviction_policy="evict_first")
    m = tl.max(logits, 0)
    e = tl.exp(logits - tl.where(m == -float("inf"), 0.0, m))
    high, low = tl.reduce((e, tl.zeros_like(e)), 0, add)
    scale = 1.0
    if PARTS > 1:
        own = stats + ticket * 3
        tl.store(own, m)
        tl.store(own + 1, high)
        tl.store(own + 2, low)
        tl.debug_barrier()
        tl.atomic_add(counters + 1 + row, 1, sem="release")
        if WAIT:
            while tl.atomic_add(counters + 1 + row, 0, sem="acquire") < PARTS:
                pass
        each = tl.arange(0, PARTS_UP)
        there = each < PARTS
        all_of = stats + (row * PARTS + each) * 3
        # Past the first-level cache: it may hold the line from before the others wrote.
        ms = tl.load(all_of, mask=there, other=-float("inf"), cache_modifier=".cg")
        highs = tl.load(all_of + 1, mask=there, other=0.0, cache_modifier=".cg")
        lows = tl.load(all_of + 2, mask=there, other=0.0, cache_modifier=".cg")
        most = tl.max(ms, 0)
        lifts = lift(ms, most)
        products = lifts * highs
        high, low = tl.reduce((products, tl.fma(lifts, highs, -products) + lifts * lows), 0, add)
        scale = lift(m, most)
    # scale / (high + low) as a pair, and each product with it rounded once.
    one = 1.0 / high
    rest = one * (tl.fma(-high, one, 1.0) - low * one)
    factor = scale * one
    factor_rest = tl.fma(scale, one, -factor) + scale * rest
    tl.store(y + start + column, tl.fma(e, factor, e * factor_rest), mask=column < V, eviction_policy="evict_first")


@functools.cache
def processors(device: torch.device) -> int:
    """Programs that certainly run at the same time."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def solution(x: Tensor, y: Tensor) -> None:
    R, V = x.shape
    block = PART if V > WHOLE else max(1024, triton.next_power_of_2(V))
    while triton.cdiv(V, block) > processors(x.device):
        block *= 2
    parts = triton.cdiv(V, block)
    # Rows of whole 16 bytes are read in pieces of 16. Of others a thread reads single elements, and more of them to hide that.
    warps = block // (1024 if V % 4 == 0 else 2048)
    counters = torch.zeros(1 + R, dtype=torch.int32, device=x.device)
    stats = torch.empty(R, parts, 3, dtype=x.dtype, device=x.device)
    # Left to itself the compiler fuses products into the sums of `add`, which are exact only as they stand.
    softmax[(R * parts,)](
        x, y, counters, stats, V, parts, triton.next_power_of_2(parts), block, True,
        num_warps=max(1, min(32, warps)), enable_fp_fusion=False,
    )  # fmt: skip
