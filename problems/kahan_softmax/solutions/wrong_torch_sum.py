# verdict: incorrect
# The sum that torch gives, which adds up in fp32 too.

from torch import Tensor


def solution(x: Tensor, y: Tensor) -> None:
    e = (x - x.amax(1, keepdim=True)).exp()
    y.copy_(e / e.sum(1, keepdim=True))
