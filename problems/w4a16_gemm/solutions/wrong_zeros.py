# verdict: incorrect
# Zeros, which an absolute tolerance would let through.

from torch import Tensor


def solution(x: Tensor, qw: Tensor, s: Tensor, z: Tensor, y: Tensor) -> None:
    y.zero_()
