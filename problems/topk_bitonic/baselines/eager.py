# baseline: torch.topk

from torch import Tensor


def solution(x: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    found = x.topk(len(ranks), dim=-1)
    return found.values, found.indices
