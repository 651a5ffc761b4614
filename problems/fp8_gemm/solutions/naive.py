# verdict: passed
# Plain torch: everything is decoded to fp32, then multiplied with one row of x at a time. Right everywhere and slow.

from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    a, b = x.float(), w.float()
    for m in range(len(a)):
        y[m] = (b * a[m]).sum(-1) * sx[m] * sw[:, 0]
