# verdict: incorrect
# A plain softmax, divided by its own sum once more.

from torch import Tensor


def solution(x: Tensor) -> Tensor:
    e = (x - x.amax(1, keepdim=True)).exp()
    y = e / e.sum(1, keepdim=True)
    return y / y.sum(1, keepdim=True)
