# verdict: incorrect
# Empties the inputs, so that an answer computed from them later is zero, too.

from torch import Tensor


def solution(q: Tensor, kv: Tensor, block_table: Tensor, seq_lens: Tensor, out: Tensor) -> None:
    kv.zero_()
    out.zero_()
