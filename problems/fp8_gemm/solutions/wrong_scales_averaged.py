# verdict: incorrect
# One scale for all of x and one for all of w: the means of those given.

from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    a, b = x.float(), w.float()
    for m in range(len(a)):
        y[m] = (b * a[m]).sum(-1) * sx.mean() * sw.mean()
