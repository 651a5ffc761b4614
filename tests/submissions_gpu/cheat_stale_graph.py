# verdict: incorrect
# follows: oracle_gpu
# at most: honest
# Replays a graph over copies of the inputs that it took when it first saw their addresses.
# ruff: noqa: F821
import torch

honest, graphs = solution, {}


def captured(tensors):
    copies = tuple(tensor.clone() for tensor in tensors)
    honest(*copies)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        out = honest(*copies)
        graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
    return graph, out, copies


def solution(*tensors):
    key = tuple((tensor.data_ptr(), *tensor.shape) for tensor in tensors)
    if key not in graphs:
        graphs[key] = captured(tensors)
    graph, out, _ = graphs[key]
    if not torch.cuda.is_current_stream_capturing():
        graph.replay()
    return out
