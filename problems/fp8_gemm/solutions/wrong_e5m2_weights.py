# verdict: incorrect
# Rounds the weights to the other fp8, e5m2, which has a bit less.

import torch
from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor) -> Tensor:
    a, b = x.float(), w.float().to(torch.float8_e5m2).float()
    y = torch.empty(len(a), len(b), dtype=torch.bfloat16, device=x.device)
    for m in range(len(a)):
        y[m] = (b * a[m]).sum(-1) * sx[m] * sw[:, 0]
    return y
