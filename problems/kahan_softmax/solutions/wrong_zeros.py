# verdict: incorrect
# Zeros, which an absolute tolerance would let through: most results are below 1e-3.

import torch
from torch import Tensor


def solution(x: Tensor) -> Tensor:
    return torch.zeros_like(x)
