# verdict: passed
# follows: naive
# Honest, and prints a gigabyte while it is imported.
import sys

for _ in range(1024):
    sys.stdout.write("x" * (1 << 20))
