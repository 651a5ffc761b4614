# verdict: incorrect
# One scale for all of x and one for all of w: the means of those given.

import torch
from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor) -> Tensor:
    a, b = x.float(), w.float()
    y = torch.empty(len(a), len(b), dtype=torch.bfloat16, device=x.device)
    for m in range(len(a)):
        y[m] = (b * a[m]).sum(-1) * sx.mean() * sw.mean()
    return y
