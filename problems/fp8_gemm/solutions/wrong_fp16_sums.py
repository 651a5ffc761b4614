# verdict: incorrect
# Keeps its sums in fp16 from one 32 places to the next: they end at 65504.

import torch
from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    a, b = x.float(), w.float()
    for m in range(0, len(a), 16):
        total = torch.zeros(1, device=x.device)
        for k in range(0, x.shape[1], 32):
            more = (a[m : m + 16, None, k : k + 32] * b[None, :, k : k + 32]).sum(-1)
            total = (total + more).half().float()
        y[m : m + 16] = total * sx[m : m + 16] * sw.T
