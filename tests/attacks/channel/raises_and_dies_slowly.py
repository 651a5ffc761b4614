# verdict: crashed
# follows: dies_slowly
# Raises an exception; then the kernel takes a second to end it.


def solution(*tensors):
    raise ValueError("no")
