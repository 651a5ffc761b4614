# verdict: passed
# Writes every element of every output at every call.
import torch


def solution(x, y, count):
    torch.mul(x, 2, out=y)
    torch.sum(x > 0, 1, out=count)
