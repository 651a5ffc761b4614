# verdict: incorrect
# Decodes e4m3 by moving bits, and so takes every subnormal number for zero: right but for those.

import torch
from torch import Tensor


def decoded(values: Tensor) -> Tensor:
    bits = values.view(torch.uint8).int()
    size = torch.ldexp(8.0 + (bits & 7), (bits >> 3 & 15) - 10)
    return torch.where(bits & 0x78 == 0, 0.0, torch.where(bits > 127, -size, size))


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    a, b = decoded(x), decoded(w)
    for m in range(len(a)):
        y[m] = (b * a[m]).sum(-1) * sx[m] * sw[:, 0]
