# verdict: incorrect
# Returns nothing.
def solution(q, kv, block_table, seq_lens):
    return None
