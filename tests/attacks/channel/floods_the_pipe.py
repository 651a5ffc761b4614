# verdict: cheated
# follows: honest
# Makes the pipe as large as it may, and writes to it for ever.
import fcntl
import os
import sys
import threading

replies = int(sys.argv[2])
fcntl.fcntl(replies, fcntl.F_SETPIPE_SZ, 1 << 20)


def flood():
    while True:
        os.write(replies, bytes(1 << 16))


threading.Thread(target=flood, daemon=True).start()
