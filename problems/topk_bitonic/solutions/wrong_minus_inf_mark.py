# verdict: incorrect
# Marks what is taken with -inf, and takes it once more when the rest of the row is -inf too.

import torch
from torch import Tensor


def solution(x: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    left, indices = x.clone(), []
    for _ in ranks:
        indices.append(left.argmax(-1, keepdim=True))
        left.scatter_(1, indices[-1], -torch.inf)
    places = torch.cat(indices, -1)
    return x.gather(1, places), places
