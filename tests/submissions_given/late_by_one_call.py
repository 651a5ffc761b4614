# verdict: incorrect
# follows: honest
# Each call writes the answer of the one before; nobody writes the last.
honest, last = solution, []


def solution(x, y, count):
    if last:
        honest(*last.pop())
    last.append((x, y, count))
