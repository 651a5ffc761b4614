# verdict: passed
# follows: naive
# Honest, and very talkative while it is imported.
import sys

for _ in range(1024):
    sys.stdout.write("x" * (1 << 20))
