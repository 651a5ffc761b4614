# verdict: incorrect
# follows: oracle_gpu
# at most: honest
# Works on a second stream that is never waited for: the output will hold the answer later.
# ruff: noqa: F821
import torch

honest, streams = solution, []


def solution(q, kv, block_table, seq_lens, out):
    if not streams:
        streams.append(torch.cuda.Stream())
    # Of copies: the inputs may be gone, or half of the next ones, by then.
    inputs = [tensor.clone() for tensor in (q, kv, block_table, seq_lens)]
    streams[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(streams[0]):
        honest(*inputs, out)
    for tensor in inputs:
        tensor.record_stream(streams[0])
