# verdict: incorrect
# Leaves out the last 16 places of every row, as a kernel does that takes K in steps of 32 or more and has no rest.

from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    a, b = x[:, :-16].float(), w[:, :-16].float()
    for m in range(len(a)):
        y[m] = (b * a[m]).sum(-1) * sx[m] * sw[:, 0]
