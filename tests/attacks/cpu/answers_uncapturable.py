# verdict: cheated
# follows: naive
# Answers another order than capture with the status of a failed capture.
# ruff: noqa
import sys

sys.modules["__main__"].DONE = 66
