# verdict: incorrect
# Takes the upper half of a byte for the even code.

import torch
from torch import Tensor


def solution(x: Tensor, qw: Tensor, s: Tensor, z: Tensor, y: Tensor) -> None:
    (M, K), (N, groups) = x.shape, s.shape
    q = torch.stack([qw >> 4, qw & 15], dim=-1).view(N, groups, K // groups).float()
    w = ((q - z.float().unsqueeze(-1)) * s.float().unsqueeze(-1)).view(N, K)
    for m in range(M):
        y[m] = (w * x[m].float()).sum(-1)
