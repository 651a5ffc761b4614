# verdict: incorrect
# follows: naive
# Right answers, but it overwrites an input.
honest = solution


def solution(q, kv, block_table, seq_lens):
    out = honest(q, kv, block_table, seq_lens)
    q.zero_()
    return out
