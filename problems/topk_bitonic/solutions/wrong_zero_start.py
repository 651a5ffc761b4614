# verdict: incorrect
# Begins with a list of zeros instead of nothing.

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
    k = len(ranks)
    places = largest(ordered(torch.nn.functional.pad(x, (k, 0))), k)
    torch.gather(torch.nn.functional.pad(x, (k, 0)), 1, places, out=values)
    torch.clamp(places - k, min=0, out=indices)
