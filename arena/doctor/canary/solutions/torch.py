# verdict: passed
# Plain torch: what a CPU can be asked.

from torch import Tensor


def solution(x: Tensor) -> Tensor:
    return x * 2
