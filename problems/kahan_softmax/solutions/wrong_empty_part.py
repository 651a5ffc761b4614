# verdict: incorrect
# A maximum and a compensated sum for each of 16 parts of a row, put together in the end: NaN where a part is -inf throughout.

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
    """The sum of every row (R, 1) and what it leaves out: halves are added to each other until one column is left."""
    high, low = e, torch.zeros_like(e)
    while high.shape[1] > 1:
        half = high.shape[1] // 2
        s, lost = two_sum(high[:, :half], high[:, half : 2 * half])
        low_s = low[:, :half] + low[:, half : 2 * half] + lost
        high, low = (torch.cat([a, b[:, 2 * half :]], 1) for a, b in ((s, high), (low_s, low)))
    return two_sum(high, low)


def solution(x: Tensor, y: Tensor) -> None:
    R, V = x.shape
    parts = torch.nn.functional.pad(x, (0, -V % PARTS), value=-torch.inf).view(R * PARTS, -1)
    m = parts.amax(1, keepdim=True)
    e = (parts - m).exp()
    high, low = total(e)
    lift = (m.view(R, PARTS) - x.amax(1, keepdim=True)).exp()
    p, lost = two_product(lift, high.view(R, PARTS))
    highs, rests = total(p)
    rests = rests + (lost + lift * low.view(R, PARTS)).sum(1, keepdim=True)
    one = 1 / highs
    p, lost = two_product(highs, one)
    rest = one * ((1 - p) - lost - rests * one)
    factor, lost = two_product(lift, one)
    factor, lost = factor.view(-1, 1), (lost + lift * rest).view(-1, 1)
    p, left = two_product(e, factor)
    y.copy_((p + (left + e * lost)).view(R, -1)[:, :V])
