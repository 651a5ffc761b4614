# verdict: incorrect
# Leaves out what does not fill a tile of 128 at the end of a row.

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
    n = x.shape[1]
    indices.copy_(largest(ordered(x[:, : max(n - n % 128, len(ranks))].contiguous()), len(ranks)))
    torch.gather(x, 1, indices, out=values)
