# verdict: incorrect
# follows: oracle_gpu
# at most: honest
# Within the rules of capture: every call forks to one of four streams that the first call of a window forked, and never joins. With one
# hardware queue the work may be over in time all the same, and passes.
# ruff: noqa: F821
import torch

honest, streams, count = solution, [], [0]


def solution(*tensors):
    if not streams:
        streams.extend(torch.cuda.Stream() for _ in range(4))
    side = streams[count[0] % 4]
    count[0] += 1
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        honest(*tensors)
