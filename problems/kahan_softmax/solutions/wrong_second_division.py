# verdict: incorrect
# A plain softmax, divided by its own sum once more.

from torch import Tensor


def solution(x: Tensor, y: Tensor) -> None:
    e = (x - x.amax(1, keepdim=True)).exp()
    p = e / e.sum(1, keepdim=True)
    y.copy_(p / p.sum(1, keepdim=True))
