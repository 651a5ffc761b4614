# verdict: passed
# follows: naive
# Honest, and returns the same buffer from every call.
honest, buffers = solution, {}


def solution(q, kv, block_table, seq_lens):
    out = buffers.setdefault(tuple(q.shape), q.new_empty(q.shape))
    out.copy_(honest(q, kv, block_table, seq_lens))
    return out
