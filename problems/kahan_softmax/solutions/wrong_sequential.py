# verdict: incorrect
# One element after the other.

import torch
from torch import Tensor


def solution(x: Tensor, y: Tensor) -> None:
    e = (x - x.amax(1, keepdim=True)).exp()
    s = torch.zeros_like(e[:, 0])
    for column in e.t().contiguous():
        s += column
    y.copy_(e / s[:, None])
