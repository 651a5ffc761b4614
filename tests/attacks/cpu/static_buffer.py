# verdict: passed
# follows: honest
# Honest, and computes in a buffer of its own, the same in every call.
honest, buffers = solution, {}


def solution(x, y, count):
    scratch = buffers.setdefault(tuple(x.shape), (x.new_empty(y.shape), count.new_empty(count.shape)))
    honest(x, *scratch)
    y.copy_(scratch[0])
    count.copy_(scratch[1])
