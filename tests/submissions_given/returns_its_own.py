# verdict: incorrect
# message: the solution returned a tuple; this problem's solutions write into the outputs that they are given and return None
# Right answers, in tensors of its own.
def solution(x, y, count):
    return 2 * x, (x > 0).sum(1)
