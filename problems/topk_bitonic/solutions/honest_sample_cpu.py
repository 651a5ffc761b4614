# verdict: passed
# Honest: a sample of a row says what is surely too small, and only the rest is looked at; a row misjudged so is looked at whole.

import torch
from torch import Tensor

STEP = 64
"""One element in so many is in the sample."""
LEAST = -(2**31)


def ordered(x: Tensor) -> Tensor:
    """int32 keys that compare as the numbers do, -0 just below 0. None is LEAST, which NaN alone would be."""
    bits = x.view(torch.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def kth(keys: Tensor, k: int) -> Tensor:
    """The k-th largest key of each row (rows, 1): the largest bound that k keys reach."""
    low = torch.full((len(keys), 1), LEAST, dtype=torch.int64)
    for bit in reversed(range(32)):
        bound = low + (1 << bit)
        enough = (keys >= bound.int()).sum(-1, keepdim=True, dtype=torch.int32) >= k
        low = torch.where(enough, bound, low)
    return low.int()


def packed(wanted: Tensor, most: int) -> Tensor:
    """Places (rows, most) of what is wanted in each row, in its order; 0 behind the last."""
    slot = torch.where(wanted, wanted.cumsum(-1) - 1, most)  # What is not wanted shares the slot behind the last.
    places = torch.arange(wanted.shape[1]).expand_as(slot)
    return torch.zeros(len(wanted), most + 1, dtype=torch.int64).scatter_(1, slot, places)[:, :most]


def solution(x: Tensor, ranks: Tensor, values: Tensor, indices: Tensor) -> None:
    k, keys = len(ranks), ordered(x)
    sample = keys[:, ::STEP]
    bound = kth(sample, min(sample.shape[1], 2 * k // STEP + 8))
    bound = torch.where((keys >= bound).sum(-1, keepdim=True) >= k, bound, LEAST)
    kept = keys >= bound
    counts = kept.sum(-1, keepdim=True)
    candidates = packed(kept, int(counts.max()))
    found = keys.gather(1, candidates).masked_fill_(torch.arange(candidates.shape[1]) >= counts, LEAST)
    least = kth(found, k)
    above, equal = found > least, found == least
    chosen = packed(above | (equal & (equal.cumsum(-1) <= k - above.sum(-1, keepdim=True))), k)
    tied = found.gather(1, chosen).long() * k - torch.arange(k)  # No two are equal now.
    rank = torch.stack([(row > row[:, None]).sum(-1) for row in tied])
    indices.scatter_(1, rank, candidates.gather(1, chosen))
    torch.gather(x, 1, indices, out=values)
