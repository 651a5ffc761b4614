# verdict: cheated
# follows: honest
# Writes the first half of a reply, and keeps the rest.
import os
import struct
import sys
import time


def solution(*tensors):
    os.write(int(sys.argv[2]), struct.pack("<4sIId", b"ARNA", 4, 0, 0.0)[:10])
    time.sleep(600)
