# verdict: passed
# Plain torch: everything is decoded to fp32, then multiplied with one row of x at a time. Right everywhere and slow.

import torch
from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor) -> Tensor:
    a, b = x.float(), w.float()
    y = torch.empty(len(a), len(b), dtype=torch.bfloat16, device=x.device)
    for m in range(len(a)):
        y[m] = (b * a[m]).sum(-1) * sx[m] * sw[:, 0]
    return y
