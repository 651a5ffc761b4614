# verdict: incorrect
# follows: oracle_gpu
# Returns at once; a thread computes a little later and writes into the output.
# ruff: noqa: F821
import queue
import threading
import time

import torch

honest, work, started = solution, queue.SimpleQueue(), []


def late():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        while True:
            tensors = work.get()
            time.sleep(0.003)
            honest(*tensors)


def solution(*tensors):
    if not started:
        started.append(threading.Thread(target=late, daemon=True))
        started[0].start()
    work.put(tensors)
