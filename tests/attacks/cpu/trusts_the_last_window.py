# verdict: incorrect
# follows: honest
# Right at first; it leaves buffers unchanged in which it has written three times.
honest, written = solution, {}


def solution(x, y, count):
    written[y.data_ptr(), len(x)] = written.get((y.data_ptr(), len(x)), 0) + 1
    if written[y.data_ptr(), len(x)] <= 3:
        honest(x, y, count)
