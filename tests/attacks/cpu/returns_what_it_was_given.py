# verdict: incorrect
# message: the solution returned a Tensor; write the results into the outputs, its last arguments, and return None
# follows: honest
# Writes all of it, and returns something as well.
honest = solution


def solution(x, y, count):
    honest(x, y, count)
    return y
