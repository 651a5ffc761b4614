# verdict: passed
# follows: oracle_gpu
# Honest: the parts are joined by plain torch operations that torch.compile turns into kernels of its own.
# ruff: noqa: F821, N806
import math

import torch
import triton


@torch.compile(dynamic=True)
def joined(parts, weights, lens, out, splits, block):
    tiles = (lens + block - 1) // block
    last = tiles.cumsum(0)
    total = last[-1]
    splits = total.clamp(max=splits)
    index = torch.arange(lens.shape[0], device=lens.device)
    begin = ((last - tiles + 1) * splits - 1) // total + index
    end = (last * splits - 1) // total + 1 + index
    slot = torch.arange(parts.shape[0], device=lens.device)
    # Slots of one sequence follow each other, and those between two sequences hold nothing.
    owner = (end <= slot[:, None]).sum(1).clamp(max=lens.shape[0] - 1)
    used = ((slot >= begin[owner]) & (slot < end[owner]))[:, None]
    weights = torch.where(used, weights, float("-inf"))
    lowest = torch.full(out.shape[:2], float("-inf"), device=lens.device)
    top = lowest.scatter_reduce(0, owner[:, None].expand_as(weights), weights, "amax")
    share = torch.where(used, torch.exp2(weights - top[owner]), 0.0)
    mass = torch.zeros(out.shape[:2], device=lens.device).index_add(0, owner, share)
    parts = torch.where(used[..., None], parts * share[..., None], 0.0)
    out.copy_(torch.zeros(out.shape, device=lens.device).index_add(0, owner, parts) / mass[..., None])


def solution(q, kv, block_table, seq_lens, out):
    B, Hq, D = q.shape
    page, Hkv = kv.shape[2:4]
    block = max(16, min(128, 8192 // D))
    splits = 4 * 132 // Hkv
    parts = torch.empty((splits + B, Hq, D), dtype=torch.float32, device=q.device)
    weights = torch.empty((splits + B, Hq), dtype=torch.float32, device=q.device)
    attend[(splits * Hkv,)](
        q, kv, block_table, seq_lens, parts, weights, B, block_table.shape[1], splits, math.log2(math.e) / math.sqrt(D),
        HQ=Hq, HKV=Hkv, D=D, PAGE=page, ROWS=max(16, triton.next_power_of_2(Hq // Hkv)),
        BLOCK_T=block, MOST_B=triton.next_power_of_2(B), num_stages=5,
    )  # fmt: skip
    joined(parts, weights, seq_lens, out, splits, block)
