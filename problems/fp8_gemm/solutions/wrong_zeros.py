# verdict: incorrect
# Zeros, which an absolute tolerance would let through.

import torch
from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor) -> Tensor:
    return torch.zeros(len(x), len(w), dtype=torch.bfloat16, device=x.device)
