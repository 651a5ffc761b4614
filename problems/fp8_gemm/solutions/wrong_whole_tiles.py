# verdict: incorrect
# Computes whole tiles of 8 rows and leaves the rest zero: right where there is none.

from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    a, b = x.float(), w.float()
    y.zero_()
    for m in range(len(a) // 8 * 8):
        y[m] = (b * a[m]).sum(-1) * sx[m] * sw[:, 0]
