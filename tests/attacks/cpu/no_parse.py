# verdict: crashed
# Does not parse.
def solution(x, y, count)
    y.copy_(x)
