# verdict: incorrect
# Returns memory that nobody has written.
import torch


def solution(q, kv, block_table, seq_lens):
    return torch.empty_like(q)
