# verdict: crashed
# Reads address 0.
import ctypes


def solution(x, y, count):
    return ctypes.string_at(0)
