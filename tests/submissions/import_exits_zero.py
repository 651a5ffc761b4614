# verdict: crashed
# Leaves at import with the exit status of a good program, after saying what a careless judge wants to read.
import os
import sys

print("PASS\npeak_fraction: 0.99", flush=True)
sys.stderr.flush()
os._exit(0)
