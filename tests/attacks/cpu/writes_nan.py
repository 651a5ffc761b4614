# verdict: incorrect
# message: y[0, 0] is nan where a finite value is expected
# NaN everywhere: must not slip through a comparison that is false for NaN.
def solution(x, y, count):
    y.fill_(float("nan"))
    count.copy_((x > 0).sum(1))
