# verdict: incorrect
# message: solution() changed its input x
# follows: honest
# Writes where it may only read.
honest = solution


def solution(x, y, count):
    honest(x, y, count)
    x.zero_()
