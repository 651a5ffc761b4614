# verdict: incorrect
# Finds the place of each value by looking for the first element that equals it.

import torch
from torch import Tensor

LEAST = -(2**31)


def ordered(x: Tensor) -> Tensor:
    """int32 keys that compare as the numbers do."""
    bits = x.view(torch.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def largest(keys: Tensor, k: int) -> Tensor:
    """Places of the k largest keys of each row, one after the other."""
    keys, places = keys.clone(), []
    for _ in range(k):
        places.append(keys.argmax(-1, keepdim=True))
        keys.scatter_(-1, places[-1], LEAST)
    return torch.cat(places, -1)


def solution(x: Tensor, ranks: Tensor, values: Tensor, indices: Tensor) -> None:
    torch.gather(x, 1, largest(ordered(x), len(ranks)), out=values)
    for rank, value in enumerate(values.unbind(1)):
        indices[:, rank] = (x == value[:, None]).int().argmax(-1)
