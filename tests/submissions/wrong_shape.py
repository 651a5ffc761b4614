# verdict: incorrect
# Returns a tensor of another shape.
def solution(q, kv, block_table, seq_lens):
    return q[:, :1].clone()
