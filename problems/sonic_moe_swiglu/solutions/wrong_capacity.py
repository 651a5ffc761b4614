# verdict: incorrect
# Drops the rows of an expert beyond twice the mean, as trainers with a capacity do.

from itertools import pairwise

from torch import Tensor
from torch.nn.functional import silu


def solution(x: Tensor, tok: Tensor, off: Tensor, W: Tensor, out: Tensor) -> None:
    I = W.shape[1] // 2  # noqa: E741
    out.zero_()
    for e, (begin, end) in enumerate(pairwise(off.tolist())):
        end = min(end, begin + 2 * len(tok) // W.shape[0])
        gates, ups = W[e].float().split(I)
        # Sixteen rows at a time, because every product is written out before it is added up.
        for r in range(begin, end, 16):
            rows = slice(r, min(r + 16, end))
            tokens = x[tok[rows].long(), None].float()
            out[rows] = silu((tokens * gates).sum(-1)) * (tokens * ups).sum(-1)
