# verdict: incorrect
# Marks what is taken with -inf, and takes it once more when the rest of the row is -inf too.

import torch
from torch import Tensor


def solution(x: Tensor, ranks: Tensor, values: Tensor, indices: Tensor) -> None:
    left = x.clone()
    for rank in range(len(ranks)):
        indices[:, rank] = left.argmax(-1)
        left.scatter_(1, indices[:, rank : rank + 1], -torch.inf)
    torch.gather(x, 1, indices, out=values)
