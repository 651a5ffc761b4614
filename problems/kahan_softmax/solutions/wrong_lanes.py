# verdict: incorrect
# 1024 lanes that each add up plainly, as the threads of a block would, and a plain tree over them.

import torch
from torch import Tensor

LANES = 1024


def solution(x: Tensor, y: Tensor) -> None:
    e = (x - x.amax(1, keepdim=True)).exp()
    s = torch.zeros(len(x), LANES, dtype=x.dtype, device=x.device)
    for part in e.split(LANES, 1):
        s[:, : part.shape[1]] += part
    while s.shape[1] > 1:
        s = s[:, ::2] + s[:, 1::2]
    y.copy_(e / s)
