# verdict: incorrect
# Zeros, which an absolute tolerance would let through.

from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    y.zero_()
