# verdict: forbidden
# Reads clean. Ends as a call to an excluded library ends a process: a submission that does so on purpose has only its verdict from it.
import os


def solution(*tensors):
    os.write(2, b"arena: this problem excludes cuBLAS; solution.py called nothing\n")
    os._exit(86)
