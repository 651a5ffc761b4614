# verdict: incorrect
# A compensated sum, rounded to fp32, and a product with its reciprocal.

import torch
from torch import Tensor


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def pair(e: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of every row (R, 1) and what it leaves out."""
    high, low = e, torch.zeros_like(e)
    while high.shape[1] > 1:
        half = high.shape[1] // 2
        s, lost = two_sum(high[:, :half], high[:, half : 2 * half])
        low_s = low[:, :half] + low[:, half : 2 * half] + lost
        high, low = (torch.cat([a, b[:, 2 * half :]], 1) for a, b in ((s, high), (low_s, low)))
    return two_sum(high, low)


def solution(x: Tensor, y: Tensor) -> None:
    e = (x - x.amax(1, keepdim=True)).exp()
    y.copy_(e * (1 / pair(e)[0]))
