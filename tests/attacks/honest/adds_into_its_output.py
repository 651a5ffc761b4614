# verdict: passed
# follows: oracle_gpu
# Honest: makes its output zero and adds into it, as a kernel does that splits its sums.
# ruff: noqa: F821
import torch

honest = solution


def solution(q, kv, block_table, seq_lens, out):
    out.zero_()
    part = torch.empty_like(out)
    honest(q, kv, block_table, seq_lens, part)
    out.add_(part)
