# verdict: forbidden
# The softmax that torch has, which sums up in fp32 and is not allowed by name.

import torch
from torch import Tensor


def solution(x: Tensor, y: Tensor) -> None:
    y.copy_(torch.softmax(x, -1))
