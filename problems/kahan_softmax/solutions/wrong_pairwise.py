# verdict: incorrect
# A pairwise sum in fp32, the best that a plain tree can do.

import torch
from torch import Tensor


def solution(x: Tensor, y: Tensor) -> None:
    e = (x - x.amax(1, keepdim=True)).exp()
    s = e
    while s.shape[1] > 1:
        half = s.shape[1] // 2
        s = torch.cat([s[:, :half] + s[:, half : 2 * half], s[:, 2 * half :]], 1)
    y.copy_(e / s)
