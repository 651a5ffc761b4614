# verdict: incorrect
# Zeros: a tolerance that accepts them checks nothing.

import torch
from torch import Tensor


def solution(x: Tensor) -> Tensor:
    return torch.zeros_like(x)
