# verdict: incorrect
# message: the solution returned a tuple; write the results into the outputs, its last arguments, and return None
# Right answers, in tensors of its own.
def solution(x, y, count):
    return 2 * x, (x > 0).sum(1)
