# verdict: passed
# The twin of all others here: writes every output, and touches nothing else.
import torch


def solution(x, y, count):
    torch.mul(x, 2, out=y)
    torch.sum(x > 0, 1, out=count)
