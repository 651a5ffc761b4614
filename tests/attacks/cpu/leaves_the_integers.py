# verdict: incorrect
# message: count[
# Writes the numbers that could be NaN and leaves the others.
def solution(x, y, count):
    y.copy_(2 * x)
