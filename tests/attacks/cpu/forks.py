# verdict: passed
# follows: naive
# Honest, with idle children of its own.
import os
import time

for _ in range(20):
    if os.fork() == 0:
        time.sleep(3600)
        os._exit(0)
