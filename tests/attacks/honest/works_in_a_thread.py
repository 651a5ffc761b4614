# verdict: passed
# follows: oracle
# Honest: a thread of its own makes every call, on the caller's stream, and the caller waits for it.
# ruff: noqa: F821
import contextlib
from concurrent.futures import ThreadPoolExecutor

import torch

honest, pool = solution, ThreadPoolExecutor(1)


def work(stream, tensors):
    with torch.no_grad(), torch.cuda.stream(stream) if stream else contextlib.nullcontext():
        honest(*tensors)


def solution(*tensors):
    stream = torch.cuda.current_stream() if tensors[0].is_cuda else None
    pool.submit(work, stream, tensors).result()
