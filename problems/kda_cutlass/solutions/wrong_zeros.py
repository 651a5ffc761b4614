# verdict: incorrect
# Zeros, which an absolute tolerance would let through.

import torch
from torch import Tensor


def solution(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, S0: Tensor) -> tuple[Tensor, Tensor]:
    return torch.zeros_like(v), torch.zeros_like(S0)
