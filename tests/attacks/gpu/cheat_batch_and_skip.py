# verdict: incorrect
# follows: oracle_gpu
# at most: honest
# Learns how many calls a window has; where they are captured, computes the first half and writes the last answer for the rest.
# ruff: noqa: F821
import torch

honest = solution
calls = {"eager": 0, "captured": 0}
last = []


def solution(*tensors):
    if not torch.cuda.is_current_stream_capturing():
        calls["eager"], calls["captured"] = calls["eager"] * (calls["captured"] == 0) + 1, 0
        honest(*tensors)
        return
    calls["captured"] += 1
    # Windows of a few calls are checks.
    if calls["eager"] < 4 or calls["captured"] <= calls["eager"] / 2:
        honest(*tensors)
        last[:] = [tensors[-1]]
    else:
        tensors[-1].copy_(last[0])
