# verdict: incorrect
# Rounds the weights to fp4 (e2m1) with a scale for each group of 16.

import itertools

import torch
from torch import Tensor

LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def fp4(w: Tensor) -> Tensor:
    groups = w.view(len(w), -1, 16)
    step = groups.abs().amax(-1, keepdim=True).clamp_min(1e-30) / LEVELS[-1]
    size = groups.abs() / step
    near = torch.zeros_like(size)
    for low, high in itertools.pairwise(LEVELS):
        near = torch.where(size > (low + high) / 2, high, near)
    return (near * step * groups.sign()).view_as(w)


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    a, b = x.float(), fp4(w.float())
    for m in range(len(a)):
        y[m] = (b * a[m]).sum(-1) * sx[m] * sw[:, 0]
