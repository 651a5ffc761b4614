# verdict: incorrect
# Returns memory that was never written.
import torch


def solution(q, kv, block_table, seq_lens):
    return torch.empty_like(q)
