# verdict: incorrect
# One pass with a running maximum: the running sum is rescaled whenever a block brings a larger one.

import torch
from torch import Tensor

BLOCK = 1024


def solution(x: Tensor, y: Tensor) -> None:
    m = torch.full_like(x[:, :1], -torch.inf)
    total = torch.zeros_like(m)
    for part in x.split(BLOCK, 1):
        larger = torch.maximum(m, part.amax(1, keepdim=True))
        base = torch.where(larger == -torch.inf, 0, larger)  # a block, and all before it, may be -inf throughout
        s = (part - base).exp()
        while s.shape[1] > 1:
            half = s.shape[1] // 2
            s = torch.cat([s[:, :half] + s[:, half : 2 * half], s[:, 2 * half :]], 1)
        total = total * (m - base).exp() + s
        m = larger
    y.copy_((x - m).exp() / total)
