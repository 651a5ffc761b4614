# verdict: incorrect
# Keeps its sums in bf16 from one 16 places to the next: the nearest to the tolerance.

import torch
from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    a, b = x.float(), w.float()
    for m in range(0, len(a), 16):
        total = torch.zeros(1, device=x.device)
        for k in range(0, x.shape[1], 16):
            more = (a[m : m + 16, None, k : k + 16] * b[None, :, k : k + 16]).sum(-1)
            total = (total + more).bfloat16().float()
        y[m : m + 16] = total * sx[m : m + 16] * sw.T
