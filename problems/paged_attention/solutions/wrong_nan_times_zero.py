# verdict: incorrect
# Right on ordinary inputs, but reads every slot of the table and weighs the unused ones with zero: NaN there spreads.

import torch
from torch import Tensor


def solution(q: Tensor, kv: Tensor, block_table: Tensor, seq_lens: Tensor, out: Tensor) -> None:
    Hq, D = q.shape[1:]
    Hkv = kv.shape[3]
    for b, length in enumerate(seq_lens.tolist()):
        pages = block_table[b].long()
        k, v = (kv[pages, i].reshape(-1, Hkv, 1, D).float() for i in (0, 1))
        token = torch.arange(k.shape[0], device=k.device)[:, None, None]
        scores = (k * q[b].float().view(Hkv, Hq // Hkv, D)).sum(-1) * D**-0.5
        out[b] = (scores.masked_fill(token >= length, -torch.inf).softmax(0).unsqueeze(-1) * v).sum(0).reshape(Hq, D)
