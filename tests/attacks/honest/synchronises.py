# verdict: passed
# follows: oracle_gpu
# Honest: waits for the GPU in every call, so it cannot be captured.
# ruff: noqa: F821
import torch

honest = solution


def solution(*tensors):
    honest(*tensors)
    torch.cuda.synchronize()
