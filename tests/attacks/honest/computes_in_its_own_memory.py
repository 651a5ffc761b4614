# verdict: passed
# follows: oracle
# Honest: computes the last output in memory of its own, the same for every call on a shape, and copies it.
# ruff: noqa: F821
import torch

honest, kept = solution, {}


def solution(*tensors):
    *others, out = tensors
    if out.shape not in kept:
        kept[out.shape] = torch.empty_like(out)
    honest(*others, kept[out.shape])
    out.copy_(kept[out.shape])
