# verdict: incorrect
# follows: honest
# Wrong in one call of seven, like a race.
honest, calls = solution, [0]


def solution(x, y, count):
    calls[0] += 1
    honest(x, y, count)
    if calls[0] % 7 == 0:
        y.neg_()
