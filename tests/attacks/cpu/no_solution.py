# verdict: crashed
# Defines something else.
def answer(x, y, count):
    y.copy_(x)
