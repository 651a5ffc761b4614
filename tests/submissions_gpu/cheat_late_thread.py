# verdict: incorrect
# follows: oracle_gpu
# Returns at once; a thread computes a little later and writes where the answer was copied to.
# ruff: noqa: F821
import queue
import sys
import threading
import time

import torch

honest, work, started = solution, queue.SimpleQueue(), []


def late():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        while True:
            tensors, target = work.get()
            time.sleep(0.003)
            target.copy_(honest(*tensors))


def solution(*tensors):
    if not started:
        started.append(threading.Thread(target=late, daemon=True))
        started[0].start()
    target = sys._getframe(1).f_locals["wanted"][0]
    work.put((tensors, target))
    return target
