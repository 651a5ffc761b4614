# verdict: passed
# Honest: each sequence is attended to in four parts, as blocks that share one do it, and the parts are joined in bf16.

import torch
from torch import Tensor


def solution(q: Tensor, kv: Tensor, block_table: Tensor, seq_lens: Tensor, out: Tensor) -> None:
    Hq, D = q.shape[1:]
    page, Hkv = kv.shape[2], kv.shape[3]
    for b, length in enumerate(seq_lens.tolist()):
        pages = block_table[b, : -(-length // page)].long()
        k, v = (kv[pages, i].reshape(-1, Hkv, 1, D)[:length].float() for i in (0, 1))
        scores = (k * q[b].float().view(Hkv, Hq // Hkv, D)).sum(-1) * D**-0.5
        parts = [part for part in zip(scores.chunk(4), v.chunk(4), strict=True) if len(part[0])]
        each = []
        for part, values in parts:
            p = (part - part.amax(0)).exp()
            sums = (p.bfloat16().float().unsqueeze(-1) * values).sum(0)
            each.append((sums / p.sum(0).unsqueeze(-1)).bfloat16().float())
        weight = torch.stack([part.logsumexp(0) for part, _ in parts]).softmax(0).unsqueeze(-1)
        out[b] = (weight * torch.stack(each)).sum(0).reshape(Hq, D)
