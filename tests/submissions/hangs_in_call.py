# verdict: timed_out
# Never returns.
import time


def solution(q, kv, block_table, seq_lens):
    while True:
        time.sleep(1)
