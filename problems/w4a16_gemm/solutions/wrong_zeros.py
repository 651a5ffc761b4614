# verdict: incorrect
# Zeros, which an absolute tolerance would let through.

import torch
from torch import Tensor


def solution(x: Tensor, qw: Tensor, s: Tensor, z: Tensor) -> Tensor:
    return torch.zeros(x.shape[0], s.shape[0], dtype=x.dtype, device=x.device)
