# verdict: passed
# follows: oracle_gpu
# at most: honest
# Behind an oracle: prints megabytes before the profiler prints the counters to the same stream.
import atexit
import os

atexit.register(lambda: os.write(1, b"".join(b"%d\n" % number for number in range(1_000_000))))
