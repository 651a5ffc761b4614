# verdict: passed
# follows: oracle_gpu
# Honest: waits for the GPU in every call, so it cannot be captured.
# ruff: noqa: F821
import torch

honest = solution


def solution(q, kv, block_table, seq_lens, out):
    honest(q, kv, block_table, seq_lens, out)
    torch.cuda.synchronize()
