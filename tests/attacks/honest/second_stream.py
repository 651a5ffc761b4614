# verdict: passed
# follows: oracle_gpu
# Honest: works on a second stream that starts after the current one, which waits for it.
# ruff: noqa: F821
import torch

honest, streams = solution, []


def solution(*tensors):
    if not streams:
        streams.append(torch.cuda.Stream())
    side, main = streams[0], torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        honest(*tensors)
    main.wait_stream(side)
