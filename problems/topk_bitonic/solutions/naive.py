# verdict: passed
# Plain torch: the k-th largest is found bit by bit, by counting; what is above it is then put in order by comparing all pairs.

import torch
from torch import Tensor

LEAST = -(2**31)
PAIRS_AT_ONCE = 2**24


def ordered(x: Tensor) -> Tensor:
    """int32 keys that compare as the numbers do, -0 just below 0."""
    bits = x.view(torch.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def kth(keys: Tensor, k: int) -> Tensor:
    """The k-th largest key of each row (rows, 1): the largest bound that k keys reach."""
    low = torch.full((len(keys), 1), LEAST, dtype=torch.int64, device=keys.device)
    for bit in reversed(range(32)):
        bound = low + (1 << bit)
        enough = (keys >= bound.int()).sum(-1, keepdim=True, dtype=torch.int32) >= k
        low = torch.where(enough, bound, low)
    return low.int()


def first_reaching(keys: Tensor, bound: Tensor, k: int) -> Tensor:
    """Places (rows, k) of all keys above the bound, and of as many that equal it as are still wanted, in the row's order."""
    above, equal = keys > bound, keys == bound
    wanted = above | (equal & (equal.cumsum(-1) <= k - above.sum(-1, keepdim=True)))
    slot = torch.where(wanted, wanted.cumsum(-1) - 1, k)  # What is not wanted shares the slot behind the last.
    places = torch.arange(keys.shape[1], device=keys.device).expand_as(slot)
    return torch.zeros(len(keys), k + 1, dtype=torch.int64, device=keys.device).scatter_(1, slot, places)[:, :k]


def solution(x: Tensor, ranks: Tensor, values: Tensor, indices: Tensor) -> None:
    k = len(ranks)
    keys = ordered(x)
    places = first_reaching(keys, kth(keys, k), k)
    found = keys.gather(1, places).long() * k - torch.arange(k, device=x.device)  # No two are equal now.
    rank = torch.empty_like(places)
    rows = max(1, PAIRS_AT_ONCE // k**2)
    for r in range(0, len(x), rows):
        part = found[r : r + rows]
        rank[r : r + rows] = (part[:, None, :] > part[:, :, None]).sum(-1)
    indices.scatter_(1, rank, places)
    torch.gather(x, 1, indices, out=values)
