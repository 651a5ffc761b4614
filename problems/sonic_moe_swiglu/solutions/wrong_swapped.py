# verdict: incorrect
# Takes the up rows for the gate and the gate rows for up.

from itertools import pairwise

from torch import Tensor
from torch.nn.functional import silu


def solution(x: Tensor, tok: Tensor, off: Tensor, W: Tensor, out: Tensor) -> None:
    I = W.shape[1] // 2  # noqa: E741
    for e, (begin, end) in enumerate(pairwise(off.tolist())):
        ups, gates = W[e].float().split(I)
        # Sixteen rows at a time, because every product is written out before it is added up.
        for r in range(begin, end, 16):
            rows = slice(r, min(r + 16, end))
            tokens = x[tok[rows].long(), None].float()
            out[rows] = silu((tokens * gates).sum(-1)) * (tokens * ups).sum(-1)
