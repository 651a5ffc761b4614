# verdict: incorrect
# message: output 1 was given another memory or shape; write into the tensor as it came
# The same, by assignment.
def solution(x, y, count):
    y.copy_(2 * x)
    count.data = (x > 0).sum(1)
