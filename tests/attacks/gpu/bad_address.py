# verdict: passed
# follows: oracle_gpu
# A kernel that writes to an invalid address, only where it is captured: its calls are then launched one by one.
# ruff: noqa: F821
import torch
import triton
import triton.language as tl

honest = solution


@triton.jit
def bad(out):
    address = tl.full((1,), 64, tl.int64).to(tl.pointer_type(tl.float32))
    tl.store(address + tl.arange(0, 1), tl.full((1,), 1.0, tl.float32))


def solution(*tensors):
    honest(*tensors)
    if torch.cuda.is_current_stream_capturing():
        bad[(1,)](tensors[-1])
