# verdict: incorrect
# follows: oracle_gpu
# Adds into its output, which the call before has made zero: only the first call of a window makes its own zeros.
# ruff: noqa: F821
import sys

import torch

honest = solution


def solution(q, kv, block_table, seq_lens, out):
    outputs = [tensors[0] for tensors in sys._getframe(3).f_locals["self"].outputs]
    number = next(i for i, each in enumerate(outputs) if each.data_ptr() == out.data_ptr())
    if number == 0:
        out.zero_()
    part = torch.empty_like(out)
    honest(q, kv, block_table, seq_lens, part)
    out.add_(part)
    if number + 1 < len(outputs):
        outputs[number + 1].zero_()
