# verdict: incorrect
# message: is nan where a finite value is expected; elements that solution() leaves unwritten are NaN, too
# follows: honest
# Leaves out rows of zeros. Any value there is small beside the other rows, unless it is NaN.
honest = solution


def solution(x, y, count):
    before = y.clone()
    honest(x, y, count)
    silent = (x == 0).all(1)
    y[silent] = before[silent]
