# verdict: passed
# Slow, and equally slow at every call.
import time

import torch


def solution(x, y, count):
    time.sleep(0.01)
    torch.mul(x, 2, out=y)
    torch.sum(x > 0, 1, out=count)
