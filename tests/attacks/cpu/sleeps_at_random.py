# verdict: passed
# Draws anew after every 4 calls whether it sleeps for 10 or for 40 milliseconds.
import random
import time

import torch

calls = 0
pause_s = 0.01


def solution(x, y, count):
    global calls, pause_s
    if calls % 4 == 0:
        pause_s = random.choice((0.01, 0.04))
    calls += 1
    time.sleep(pause_s)
    torch.mul(x, 2, out=y)
    torch.sum(x > 0, 1, out=count)
