# verdict: incorrect
# follows: oracle_gpu
# at most: honest
# Replays a graph over copies of the inputs that it took when it first saw their addresses.
# ruff: noqa: F821
import torch

honest, graphs = solution, {}


def captured(*inputs, out):
    copies = (*(tensor.clone() for tensor in inputs), torch.empty_like(out))
    honest(*copies)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        honest(*copies)
        graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
    return graph, copies


def solution(*tensors):
    key = tuple((tensor.data_ptr(), *tensor.shape) for tensor in tensors)
    if key not in graphs:
        graphs[key] = captured(*tensors[:-1], out=tensors[-1])
    graph, copies = graphs[key]
    if not torch.cuda.is_current_stream_capturing():
        graph.replay()
    tensors[-1].copy_(copies[-1])
