# verdict: incorrect
# A radix selection that stops after 16 bits and takes the first candidates that are left.

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
    places = largest(ordered(x) >> 16, len(ranks))
    # In their true order, as far as they were chosen rightly.
    indices.copy_(places.gather(1, largest(ordered(x).gather(1, places), len(ranks))))
    torch.gather(x, 1, indices, out=values)
