# verdict: incorrect
# follows: naive
# Wrong in one call of seven, like a race.
honest, calls = solution, [0]


def solution(q, kv, block_table, seq_lens):
    calls[0] += 1
    out = honest(q, kv, block_table, seq_lens)
    return out if calls[0] % 7 else -out
