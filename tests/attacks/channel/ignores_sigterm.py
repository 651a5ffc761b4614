# verdict: passed
# follows: honest
# Honest, and deaf to SIGTERM, as are its children; it does not end when the judge closes its socket either.
import os
import signal
import time

for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
    signal.signal(number, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
        os._exit(0)
