# verdict: incorrect
# The sum that torch gives, which adds up in fp32 too.

from torch import Tensor


def solution(x: Tensor) -> Tensor:
    e = (x - x.amax(1, keepdim=True)).exp()
    return e / e.sum(1, keepdim=True)
