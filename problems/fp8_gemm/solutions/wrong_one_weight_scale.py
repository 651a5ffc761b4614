# verdict: incorrect
# The scales of x as they are, one for all of w.

import torch
from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor) -> Tensor:
    a, b = x.float(), w.float()
    y = torch.empty(len(a), len(b), dtype=torch.bfloat16, device=x.device)
    for m in range(len(a)):
        y[m] = (b * a[m]).sum(-1) * sx[m] * sw.mean()
    return y
