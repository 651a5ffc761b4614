# verdict: crashed
# Reads address 0.
import ctypes


def solution(q, kv, block_table, seq_lens):
    return ctypes.string_at(0)
