# verdict: crashed
# follows: naive
# Becomes a tiny program that ends just after the reply to the order to load it.
# ruff: noqa
import os, struct, sys, time

r, w = os.pipe()
fd = int(sys.argv[2])
if os.fork() == 0:
    os.close(r)
    time.sleep(0.3)  # the parent is /bin/sh by now
    os.write(fd, struct.pack("<4sIId", b"ARNA", 3, 0, 0.0))
    os.close(w)  # the shell's `read` ends, the command ends, init ends
    time.sleep(60)
os.dup2(r, 0)
os.close(w)
os.execv("/bin/sh", ["sh", "-c", "read x; exit 0"])
