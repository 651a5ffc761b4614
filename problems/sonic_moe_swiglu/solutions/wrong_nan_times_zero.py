# verdict: incorrect
# Right on ordinary inputs, but a block of rows takes every expert from its first row's to its last's: NaN in one between spreads.

import torch
from torch import Tensor
from torch.nn.functional import silu


def solution(x: Tensor, tok: Tensor, off: Tensor, W: Tensor, out: Tensor) -> None:
    I = W.shape[1] // 2  # noqa: E741
    expert = torch.searchsorted(off[1:].contiguous(), torch.arange(len(tok), device=x.device), right=True)
    numbers = expert.tolist()
    for r in range(0, len(tok), 16):
        rows = slice(r, min(r + 16, len(tok)))
        tokens = x[tok[rows].long(), None].float()
        both = torch.zeros(len(tokens), 2 * I, device=x.device)
        for e in range(numbers[r], numbers[rows.stop - 1] + 1):
            both += (expert[rows] == e)[:, None] * (tokens * W[e].float()).sum(-1)
        gate, up = both.split(I, dim=1)
        out[rows] = silu(gate) * up
