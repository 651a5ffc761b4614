# verdict: incorrect
# Zeros, which an absolute tolerance would let through: most results are below 1e-3.

from torch import Tensor


def solution(x: Tensor, y: Tensor) -> None:
    y.zero_()
