# baseline: torch eager, one matmul for each expert

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import silu


def solution(x: Tensor, tok: Tensor, off: Tensor, W: Tensor) -> Tensor:
    out = torch.empty(len(tok), W.shape[1] // 2, dtype=x.dtype, device=x.device)
    for e, (begin, end) in enumerate(pairwise(off.tolist())):
        if begin < end:
            gate, up = (x[tok[begin:end]] @ W[e].T).chunk(2, dim=-1)
            out[begin:end] = silu(gate) * up
    return out
