# verdict: forbidden
# Everything in fp64, which is exact enough and against the rules.

from torch import Tensor


def solution(x: Tensor, y: Tensor) -> None:
    e = (x - x.amax(1, keepdim=True)).double().exp()
    y.copy_((e / e.sum(1, keepdim=True)).float())
