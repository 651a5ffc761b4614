# verdict: passed
# Honest: four parts of K are summed apart, as blocks that share the work do it, and each is rounded to bf16 before they meet.

import torch
from torch import Tensor


def solution(x: Tensor, qw: Tensor, s: Tensor, z: Tensor, y: Tensor) -> None:
    (M, K), (N, groups) = x.shape, s.shape
    q = torch.stack([qw & 15, qw >> 4], dim=-1).view(N, groups, K // groups)
    w = ((q.float() - z.float().unsqueeze(-1)) * s.float().unsqueeze(-1)).bfloat16().float().view(N, K)
    parts = [slice(k, k + K // 4) for k in range(0, K, K // 4)]
    for m in range(M):
        y[m] = sum((w[:, part] * x[m, part].float()).sum(-1).bfloat16().float() for part in parts)
