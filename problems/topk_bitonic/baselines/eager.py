# baseline: torch.topk

import torch
from torch import Tensor


def solution(x: Tensor, ranks: Tensor, values: Tensor, indices: Tensor) -> None:
    torch.topk(x, len(ranks), dim=-1, out=(values, indices))
