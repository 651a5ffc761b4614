# verdict: incorrect
# Zeros, which an absolute tolerance would let through.

from torch import Tensor


def solution(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, S0: Tensor, o: Tensor, S_T: Tensor) -> None:
    o.zero_()
    S_T.zero_()
