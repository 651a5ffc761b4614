# verdict: passed
# follows: oracle
# Honest: some 0.1 ms of Python in every call, as a library that plans its launches needs.
# ruff: noqa: F821
honest = solution


def solution(*tensors):
    sum(range(2000))
    honest(*tensors)
