# verdict: incorrect
# follows: oracle_gpu
# at most: honest
# Reports every window's calls as done as soon as the gate opens, and computes afterwards.
import sys

Gate = sys.modules["cuda_driver"].Gate
real = Gate.wait_open


def wait_open(gate, number):
    real(gate, number)
    gate.report_done(number)


Gate.wait_open = wait_open
