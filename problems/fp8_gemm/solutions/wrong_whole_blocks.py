# verdict: incorrect
# Takes K in whole blocks of 128 and forgets the rest: right where there is none.

import torch
from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor) -> Tensor:
    whole = x.shape[1] // 128 * 128
    a, b = x[:, :whole].float(), w[:, :whole].float()
    y = torch.empty(len(a), len(b), dtype=torch.bfloat16, device=x.device)
    for m in range(len(a)):
        y[m] = (b * a[m]).sum(-1) * sx[m] * sw[:, 0]
    return y
