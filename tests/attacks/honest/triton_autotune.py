# verdict: passed
# follows: oracle_gpu
# Honest: lets Triton choose warps and stages in the first call of each kind.
# ruff: noqa: F821, N806
import math

import torch
import triton

tuned = triton.autotune(
    configs=[triton.Config({}, num_warps=warps, num_stages=stages) for warps in (4, 8) for stages in (3, 5)],
    key=["HQ", "HKV", "D", "PAGE", "MOST_B"],
)(attend)


def solution(q, kv, block_table, seq_lens, out):
    B, Hq, D = q.shape
    page, Hkv = kv.shape[2:4]
    block = {"BLOCK_T": max(16, min(128, 8192 // D)), "MOST_B": triton.next_power_of_2(B)}
    splits = 4 * 132 // Hkv
    parts = torch.empty((splits + B, Hq, D), dtype=torch.float32, device=q.device)
    weights = torch.empty((splits + B, Hq), dtype=torch.float32, device=q.device)
    tuned[(splits * Hkv,)](
        q, kv, block_table, seq_lens, parts, weights, B, block_table.shape[1], splits, math.log2(math.e) / math.sqrt(D),
        HQ=Hq, HKV=Hkv, D=D, PAGE=page, ROWS=max(16, triton.next_power_of_2(Hq // Hkv)), **block,
    )  # fmt: skip
    combine[(B * Hq,)](parts, weights, seq_lens, out, B, splits, HQ=Hq, D=D, **block, BLOCK_S=32)
