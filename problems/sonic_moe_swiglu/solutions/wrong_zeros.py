# verdict: incorrect
# Zeros, which an absolute tolerance would let through.

import torch
from torch import Tensor


def solution(x: Tensor, tok: Tensor, off: Tensor, W: Tensor) -> Tensor:
    return torch.zeros(len(tok), W.shape[1] // 2, dtype=x.dtype, device=x.device)
