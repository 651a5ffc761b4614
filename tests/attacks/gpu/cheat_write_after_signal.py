# verdict: incorrect
# follows: oracle_gpu
# at most: honest
# A second stream first spins and then computes, and the worker waits only for the first: it reports that it is done three
# milliseconds before it is. Honest while few calls are made, since those are checks.
# ruff: noqa: F821
import sys

import torch

honest, streams = solution, []
SPIN_CYCLES = 6_000_000


def solution(*tensors):
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("not to be captured")
    caller = sys._getframe(2).f_locals
    if len(caller["inputs"]) < 4:
        honest(*tensors)
        return
    if not streams:
        streams.append(torch.cuda.Stream())
    with torch.cuda.stream(streams[0]):
        if tensors[0] is caller["inputs"][0][0]:
            torch.cuda._sleep(SPIN_CYCLES)
        honest(*tensors)
