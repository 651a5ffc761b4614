# verdict: incorrect
# A tree inside each block of 1024, and a running sum over the blocks.

import torch
from torch import Tensor

BLOCK = 1024


def solution(x: Tensor, y: Tensor) -> None:
    e = (x - x.amax(1, keepdim=True)).exp()
    total = torch.zeros(len(x), 1, dtype=x.dtype, device=x.device)
    for s in e.split(BLOCK, 1):
        while s.shape[1] > 1:
            half = s.shape[1] // 2
            s = torch.cat([s[:, :half] + s[:, half : 2 * half], s[:, 2 * half :]], 1)
        total = total + s
    y.copy_(e / total)
