# verdict: incorrect
# Computes whole tiles of 8 rows and leaves the rest zero: right where there is none.

import torch
from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor) -> Tensor:
    a, b = x.float(), w.float()
    y = torch.zeros(len(a), len(b), dtype=torch.bfloat16, device=x.device)
    for m in range(len(a) // 8 * 8):
        y[m] = (b * a[m]).sum(-1) * sx[m] * sw[:, 0]
    return y
