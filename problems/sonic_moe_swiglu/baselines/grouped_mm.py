# baseline: torch grouped_mm

import torch
from torch import Tensor
from torch.nn.functional import grouped_mm, silu


def solution(x: Tensor, tok: Tensor, off: Tensor, W: Tensor, out: Tensor) -> None:
    gate, up = grouped_mm(x[tok], W.transpose(1, 2), offs=off[1:]).chunk(2, dim=-1)
    torch.mul(silu(gate), up, out=out)
