# verdict: incorrect
# follows: oracle_gpu
# at most: honest
# Fills the output of one captured call in a window with a constant. It is rejected as soon as that output is in a sample.
# ruff: noqa: F821
import sys

import torch

honest = solution


def solution(*tensors):
    sets = sys._getframe(3).f_locals["self"].inputs
    if torch.cuda.is_current_stream_capturing() and len(sets) > 8 and tensors[0] is sets[5][0]:
        tensors[-1].fill_(0.01)
    else:
        honest(*tensors)
