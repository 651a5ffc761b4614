# verdict: incorrect
# Zeros, which an absolute tolerance would let through.

from torch import Tensor


def solution(x: Tensor, tok: Tensor, off: Tensor, W: Tensor, out: Tensor) -> None:
    out.zero_()
