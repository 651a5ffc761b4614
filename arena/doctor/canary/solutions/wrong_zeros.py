# verdict: incorrect
# Zeros: a tolerance that accepts them checks nothing.

from torch import Tensor


def solution(x: Tensor, y: Tensor) -> None:
    y.zero_()
