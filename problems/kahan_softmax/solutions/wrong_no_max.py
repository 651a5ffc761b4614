# verdict: incorrect
# Takes the exponentials as they are, without the largest logit off: compensated, and too large for fp32 in large logits.

import torch
from torch import Tensor


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """a + b as fp32 has it, and what that leaves out."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def halves(a: Tensor) -> tuple[Tensor, Tensor]:
    """`a` in two parts of 12 bits each, whose products are exact."""
    c = a * 4097
    high = c - (c - a)
    return high, a - high


def two_product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """a * b as fp32 has it, and what that leaves out."""
    p = a * b
    (a1, a2), (b1, b2) = halves(a), halves(b)
    return p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2


def total(e: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of every row (R, 1) and what it leaves out: halves are added to each other until one column is left."""
    high, low = e, torch.zeros_like(e)
    while high.shape[1] > 1:
        half = high.shape[1] // 2
        s, lost = two_sum(high[:, :half], high[:, half : 2 * half])
        low_s = low[:, :half] + low[:, half : 2 * half] + lost
        high, low = (torch.cat([a, b[:, 2 * half :]], 1) for a, b in ((s, high), (low_s, low)))
    return two_sum(high, low)


def solution(x: Tensor, y: Tensor) -> None:
    e = x.exp()
    high, low = total(e)
    one = 1 / high
    p, lost = two_product(high, one)
    rest = one * ((1 - p) - lost - low * one)
    p, lost = two_product(e, one)
    y.copy_(p + (lost + e * rest))
