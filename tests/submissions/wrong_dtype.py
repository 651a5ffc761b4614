# verdict: incorrect
# Returns fp32 where bf16 is asked for.
def solution(q, kv, block_table, seq_lens):
    return q.float()
