# verdict: crashed
# Defines something else.
def answer(q, kv, block_table, seq_lens):
    return q
