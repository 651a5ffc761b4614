# verdict: incorrect
# Drops a last page that is not full.

from torch import Tensor


def solution(q: Tensor, kv: Tensor, block_table: Tensor, seq_lens: Tensor, out: Tensor) -> None:
    Hq, D = q.shape[1:]
    page, Hkv = kv.shape[2], kv.shape[3]
    for b, length in enumerate(seq_lens.tolist()):
        pages = block_table[b, : -(-length // page)].long()
        k, v = (kv[pages, i].reshape(-1, Hkv, 1, D)[:length].float() for i in (0, 1))
        full = max(1, length // page * page)
        k, v = k[:full], v[:full]
        scores = (k * q[b].float().view(Hkv, Hq // Hkv, D)).sum(-1) * D**-0.5
        out[b] = (scores.softmax(0).unsqueeze(-1) * v).sum(0).reshape(Hq, D)
