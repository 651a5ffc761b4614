# verdict: incorrect
# Zeros, which an absolute tolerance would let through.

import torch
from torch import Tensor


def solution(q: Tensor, kv: Tensor, block_table: Tensor, seq_lens: Tensor) -> Tensor:
    return torch.zeros_like(q)
