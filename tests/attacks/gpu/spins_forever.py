# verdict: timed_out
# follows: oracle_gpu
# A kernel that never ends, in the third call on a shape.
# ruff: noqa: F821
import torch

honest, calls = solution, [0]


def solution(*tensors):
    calls[0] += 1
    honest(*tensors)
    if calls[0] == 3:
        for _ in range(100):
            torch.cuda._sleep(1 << 40)
