# verdict: incorrect
# follows: honest
# Each call writes the answer of the call before; the last answer is never written.
honest, last = solution, []


def solution(x, y, count):
    if last:
        honest(*last.pop())
    last.append((x, y, count))
