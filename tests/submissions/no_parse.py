# verdict: crashed
# Does not parse.
def solution(q, kv, block_table, seq_lens)
    return q
