# verdict: incorrect
# Zeros, with places that are different and in range.

import torch
from torch import Tensor


def solution(x: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    places = torch.arange(len(ranks), device=x.device).repeat(len(x), 1)
    return torch.zeros(places.shape, dtype=x.dtype, device=x.device), places
