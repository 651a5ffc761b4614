# baseline: torch.softmax
# fp32 sums: outside the gate, and so a speed only.

import torch
from torch import Tensor


def solution(x: Tensor, y: Tensor) -> None:
    torch.softmax(x, -1, out=y)
