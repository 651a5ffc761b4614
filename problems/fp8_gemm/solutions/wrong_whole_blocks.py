# verdict: incorrect
# Takes K in whole blocks of 128 and forgets the rest: right where there is none.

from torch import Tensor


def solution(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor, y: Tensor) -> None:
    whole = x.shape[1] // 128 * 128
    a, b = x[:, :whole].float(), w[:, :whole].float()
    for m in range(len(a)):
        y[m] = (b * a[m]).sum(-1) * sx[m] * sw[:, 0]
