# verdict: incorrect
# int8 activations per group, but for channels that are large beside the others. That is not enough: large values are everywhere.

import torch
from torch import Tensor


def solution(x: Tensor, qw: Tensor, s: Tensor, z: Tensor, y: Tensor) -> None:
    (M, K), (N, groups) = x.shape, s.shape
    q = torch.stack([qw & 15, qw >> 4], dim=-1).view(N, groups, K // groups).float()
    w = ((q - z.float().unsqueeze(-1)) * s.float().unsqueeze(-1)).view(N, K)
    size = x.float().abs().mean(0)
    apart = size > 2 * size.median()
    a = x.float().masked_fill(apart, 0).view(M, groups, K // groups)
    step = a.abs().amax(-1, keepdim=True).clamp_min(1e-30) / 127
    a = torch.where(apart, x.float(), ((a / step).round() * step).view(M, K))
    for m in range(M):
        y[m] = (w * a[m]).sum(-1)
