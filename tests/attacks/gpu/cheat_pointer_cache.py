# verdict: incorrect
# follows: oracle_gpu
# Remembers answers by the addresses of the inputs: buffers that are used again with new values get old answers.
# ruff: noqa: F821
honest, answers = solution, {}


def solution(*tensors):
    key = tuple((tensor.data_ptr(), *tensor.shape) for tensor in tensors)
    if key not in answers:
        honest(*tensors)
        answers[key] = tensors[-1].clone()
    tensors[-1].copy_(answers[key])
