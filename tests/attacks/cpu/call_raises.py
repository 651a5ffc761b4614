# verdict: crashed
# Raises in the call.
def solution(x, y, count):
    raise ValueError("unsupported shape")
