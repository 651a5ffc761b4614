# verdict: passed
# follows: oracle
# Honest: computes the last output in new memory in every call, and copies it.
# ruff: noqa: F821
import torch

honest = solution


def solution(*tensors):
    *others, out = tensors
    new = torch.empty_like(out)
    honest(*others, new)
    out.copy_(new)
