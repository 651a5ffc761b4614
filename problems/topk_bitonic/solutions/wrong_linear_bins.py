# verdict: incorrect
# Counts in 4096 equal parts of each row's range: infinite ends and long tails leave too much in one of them.

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


def first_marked(marked: Tensor, room: int) -> Tensor:
    """Places (rows, room) of the first that are marked, -1 where there are no more."""
    slot = torch.where(marked, marked.cumsum(-1) - 1, room).clamp_(max=room)
    places = torch.arange(marked.shape[1], device=marked.device).expand_as(slot)
    return torch.full((len(marked), room + 1), -1, device=marked.device).scatter_(1, slot, places)[:, :room]


def solution(x: Tensor, ranks: Tensor, values: Tensor, indices: Tensor) -> None:
    k = len(ranks)
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    bins = ((x - low) / (high - low) * 4096).nan_to_num(0).clamp_(0, 4095).long()
    reached = torch.zeros(len(x), 4096, device=x.device).scatter_add_(1, bins, torch.ones_like(x)).flip(-1).cumsum(-1)
    places = first_marked(bins >= 4095 - (reached < k).sum(-1, keepdim=True), 8 * k)
    keys = torch.where(places < 0, LEAST, ordered(x).gather(1, places.clamp(min=0)))
    indices.copy_(places.gather(1, largest(keys, k)).clamp_(min=0))
    torch.gather(x, 1, indices, out=values)
