# verdict: incorrect
# message: the solution returned a Tensor; this problem's solutions write into the outputs that they are given and return None
# follows: honest
# Writes all of it, and returns something as well.
honest = solution


def solution(x, y, count):
    honest(x, y, count)
    return y
