# verdict: incorrect
# Leaves out the last group of channels.

import torch
from torch import Tensor


def solution(x: Tensor, qw: Tensor, s: Tensor, z: Tensor, y: Tensor) -> None:
    (M, K), (N, groups) = x.shape, s.shape
    q = torch.stack([qw & 15, qw >> 4], dim=-1).view(N, groups, K // groups).float()
    w = (q - z.float().unsqueeze(-1)) * s.float().unsqueeze(-1)
    w[:, -1] = 0
    w = w.view(N, K)
    for m in range(M):
        y[m] = (w * x[m].float()).sum(-1)
