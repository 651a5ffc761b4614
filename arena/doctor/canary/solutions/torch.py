# verdict: passed
# Plain torch, which also runs on a CPU.

import torch
from torch import Tensor


def solution(x: Tensor, y: Tensor) -> None:
    torch.mul(x, 2, out=y)
