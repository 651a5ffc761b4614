# verdict: incorrect
# NaN everywhere: must not slip through a comparison that is false for NaN.
def solution(q, kv, block_table, seq_lens):
    return q * float("nan")
