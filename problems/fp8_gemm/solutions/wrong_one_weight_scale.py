# verdict: incorrect
# The scales of x as they are, one for all of w.

from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    a, b = x.float(), w.float()
    for m in range(len(a)):
        y[m] = (b * a[m]).sum(-1) * sx[m] * sw.mean()
