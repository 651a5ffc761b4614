# verdict: incorrect
# Rounds the weights to the other fp8, e5m2, which has a bit less.

import torch
from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    a, b = x.float(), w.float().to(torch.float8_e5m2).float()
    for m in range(len(a)):
        y[m] = (b * a[m]).sum(-1) * sx[m] * sw[:, 0]
