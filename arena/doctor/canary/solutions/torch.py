# verdict: passed
# Plain torch, which also runs on a CPU.

from torch import Tensor


def solution(x: Tensor) -> Tensor:
    return x * 2
