# verdict: passed
# Honest: 16 parts of each row are summed apart, from the row's own maximum, each into a pair of fp32 numbers; the pairs meet.

import torch
from torch import Tensor

PARTS = 16


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
    """The sum over the last dimension and what it leaves out: halves are added to each other until one column is left."""
    high, low = e, torch.zeros_like(e)
    while high.shape[-1] > 1:
        half = high.shape[-1] // 2
        s, lost = two_sum(high[..., :half], high[..., half : 2 * half])
        low_s = low[..., :half] + low[..., half : 2 * half] + lost
        high, low = (torch.cat([a, b[..., 2 * half :]], -1) for a, b in ((s, high), (low_s, low)))
    return two_sum(high, low)


def solution(x: Tensor, y: Tensor) -> None:
    e = (x - x.amax(1, keepdim=True)).exp()
    padded = torch.nn.functional.pad(e, (0, -e.shape[1] % PARTS))
    high, low = total(padded.view(len(e), PARTS, -1))
    (high, lost), below = total(high[..., 0]), low.sum(1)
    high, low = two_sum(high, lost + below)
    one = 1 / high
    p, lost = two_product(high, one)
    rest = one * ((1 - p) - lost - low * one)
    p, lost = two_product(e, one)
    y.copy_(p + (lost + e * rest))
