# verdict: incorrect
# Kahan's sum in each of 1024 lanes, and a plain tree over them, where what the lanes kept is lost.

import torch
from torch import Tensor

LANES = 1024


def solution(x: Tensor, y: Tensor) -> None:
    e = (x - x.amax(1, keepdim=True)).exp()
    s = torch.zeros(len(x), LANES, dtype=x.dtype, device=x.device)
    c = torch.zeros_like(s)
    for part in e.split(LANES, 1):
        n = part.shape[1]
        step = part - c[:, :n]
        t = s[:, :n] + step
        c[:, :n] = (t - s[:, :n]) - step
        s[:, :n] = t
    while s.shape[1] > 1:
        s = s[:, ::2] + s[:, 1::2]
    y.copy_(e / s)
