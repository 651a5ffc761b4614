# verdict: crashed
# message: solution() takes 1 positional argument but 3 were given
# Written for problems of version 1, whose solutions returned their results.
def solution(x):
    return 2 * x, (x > 0).sum(1)
