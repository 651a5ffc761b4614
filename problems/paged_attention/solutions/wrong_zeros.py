# verdict: incorrect
# Zeros, which an absolute tolerance would let through.

from torch import Tensor


def solution(q: Tensor, kv: Tensor, block_table: Tensor, seq_lens: Tensor, out: Tensor) -> None:
    out.zero_()
