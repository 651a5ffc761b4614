# verdict: incorrect
# Tokens and weights as int8 with a scale per row, except for the channels of the outliers: the nearest that 8 bits come.

from itertools import pairwise

from torch import Tensor
from torch.nn.functional import silu


def rounded(rows: Tensor) -> Tensor:
    """Rows of 8-bit integers and one scale each, but for every 101st channel."""
    outliers = rows[..., ::101].clone()
    rows[..., ::101] = 0
    scale = rows.abs().amax(-1, keepdim=True) / 127
    rows = (rows / scale).round() * scale
    rows[..., ::101] = outliers
    return rows


def solution(x: Tensor, tok: Tensor, off: Tensor, W: Tensor, out: Tensor) -> None:
    I = W.shape[1] // 2  # noqa: E741
    for e, (begin, end) in enumerate(pairwise(off.tolist())):
        gates, ups = rounded(W[e].float()).split(I)
        # Sixteen rows at a time, because every product is written out before it is added up.
        for r in range(begin, end, 16):
            rows = slice(r, min(r + 16, end))
            tokens = rounded(x[tok[rows].long(), None].float())
            out[rows] = silu((tokens * gates).sum(-1)) * (tokens * ups).sum(-1)
