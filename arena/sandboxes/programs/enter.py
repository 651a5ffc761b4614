"""Process 1 of a container until it becomes init.py: `python -I -S enter.py`. It fetches what no engine hands on.

No descriptor reaches a container through its engine, so arena sends them over a socket that is bound into it: the command's
streams, the judge's socket, and this connection itself, which init.py serves. The filter is installed here, upon the
engine's own: both are then in force, and a call passes only if both let it. Nothing else runs in the box so far.
"""

import ctypes
import fcntl
import marshal  # the order comes from the same interpreter
import os
import socket
import sys

DOOR_INSIDE = "/run/arena/door"
CONTROL = "control"
"""Arena's socket behind the door. It is taken away once process 1 has come by: the folder is empty when the command starts."""
MOST_DESCRIPTORS = 253
"""What the kernel sends in one message."""
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
INSTRUCTION_BYTES = 8


class Filter(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("instructions", ctypes.c_ushort), ("program", ctypes.c_char_p))


def place(received: list[int], numbers: list[int]) -> None:
    """Give each descriptor its number. First out of each other's way: they may have come under any number."""
    above = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for fd in received]
    for fd, number in zip(above, numbers, strict=True):
        os.dup2(fd, number, inheritable=True)


def seal(program: bytes) -> None:
    """Install the filter; it can never be taken off."""
    libc = ctypes.CDLL(None, use_errno=True)
    described = Filter(len(program) // INSTRUCTION_BYTES, program)
    if libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), ctypes.byref(described)):
        sys.exit(f"enter: the kernel refuses the filter: {os.strerror(ctypes.get_errno())}")


def main() -> None:
    """Carry out the order (numbers, program, argv, env) and become init.py."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        control.connect(f"{DOOR_INSIDE}/{CONTROL}")
        _, received, _, _ = socket.recv_fds(control, 16, MOST_DESCRIPTORS)
    except OSError:
        received = []
    if not received:
        sys.exit("enter: arena ended while the box was being started")
    with open(received.pop(0), "rb") as stream:
        order = marshal.loads(stream.read())
    place([control.fileno(), *received], order["numbers"])
    os.umask(0o022)
    os.chdir("/workspace")
    seal(order["program"])
    os.execve(order["argv"][0], order["argv"], order["env"])


if __name__ == "__main__":
    main()
