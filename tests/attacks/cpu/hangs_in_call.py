# verdict: timed_out
# Never returns.
import time


def solution(x, y, count):
    while True:
        time.sleep(1)
