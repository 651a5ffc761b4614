# verdict: incorrect
# Rounds the activations to fp8 (e4m3) with one scale per row.

import torch
from torch import Tensor


def solution(x: Tensor, qw: Tensor, s: Tensor, z: Tensor, y: Tensor) -> None:
    (M, K), (N, groups) = x.shape, s.shape
    q = torch.stack([qw & 15, qw >> 4], dim=-1).view(N, groups, K // groups).float()
    w = ((q - z.float().unsqueeze(-1)) * s.float().unsqueeze(-1)).view(N, K)
    step = x.float().abs().amax(-1, keepdim=True) / 448
    a = (x.float() / step).to(torch.float8_e4m3fn).float() * step
    for m in range(M):
        y[m] = (w * a[m]).sum(-1)
