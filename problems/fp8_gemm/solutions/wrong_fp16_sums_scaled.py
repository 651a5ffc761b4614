# verdict: incorrect
# Keeps its sums in fp16, 256 times smaller so that they fit: right until all values are large.

import torch
from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    a, b = x.float() / 256, w.float()
    for m in range(0, len(a), 16):
        total = torch.zeros(1, device=x.device)
        for k in range(0, x.shape[1], 32):
            more = (a[m : m + 16, None, k : k + 32] * b[None, :, k : k + 32]).sum(-1)
            total = (total + more).half().float()
        y[m : m + 16] = total * 256 * sx[m : m + 16] * sw.T
