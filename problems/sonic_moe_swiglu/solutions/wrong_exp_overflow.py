# verdict: incorrect
# Right on ordinary inputs, but takes e to the gate: a large one gives infinity over infinity.

from itertools import pairwise

from torch import Tensor


def solution(x: Tensor, tok: Tensor, off: Tensor, W: Tensor, out: Tensor) -> None:
    I = W.shape[1] // 2  # noqa: E741
    for e, (begin, end) in enumerate(pairwise(off.tolist())):
        gates, ups = W[e].float().split(I)
        # Sixteen rows at a time, because every product is written out before it is added up.
        for r in range(begin, end, 16):
            rows = slice(r, min(r + 16, end))
            tokens = x[tok[rows].long(), None].float()
            gate = (tokens * gates).sum(-1)
            out[rows] = gate * gate.exp() / (1 + gate.exp()) * (tokens * ups).sum(-1)
