"""Container entry point: process 1 of a container until it becomes init.py (`python -I -S enter.py`).

No descriptor reaches a container through its engine. So arena sends them over a socket that is bound into it: the command's
streams, the judge's channel, and this connection itself, which init.py serves. This program also installs the filter, on top of
the engine's own: a call passes only if both allow it. No other process runs in the sandbox so far.
"""

import ctypes
import fcntl
import marshal  # the order comes from the same interpreter
import os
import socket
import sys

SOCKET_FOLDER_INSIDE = "/run/arena/socket"
CONTROL = "control"
"""Arena's socket in that folder. It is removed once process 1 has connected: the folder is empty when the command starts."""
MOST_DESCRIPTORS = 253  # most descriptors that the kernel sends in one message
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
INSTRUCTION_BYTES = 8


class Filter(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("instructions", ctypes.c_ushort), ("program", ctypes.c_char_p))


def install_filter(program: bytes) -> None:
    """Install the system call filter; it can never be removed."""
    libc = ctypes.CDLL(None, use_errno=True)
    described = Filter(len(program) // INSTRUCTION_BYTES, program)
    if libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), ctypes.byref(described)):
        sys.exit(f"enter: the kernel refuses the filter: {os.strerror(ctypes.get_errno())}")


def main() -> None:
    """Carry out the order (numbers, filter, argv, env) and become init.py."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        control.connect(f"{SOCKET_FOLDER_INSIDE}/{CONTROL}")
        _, received, _, _ = socket.recv_fds(control, 16, MOST_DESCRIPTORS)
    except OSError:
        received = []
    if not received:
        sys.exit("enter: arena ended while the sandbox was being started")
    with open(received.pop(0), "rb") as stream:
        order = marshal.loads(stream.read())
    # Each descriptor gets its number, by way of numbers above all of them: a received one may have the number of another.
    numbers = order["numbers"]
    above = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for fd in (control.fileno(), *received)]
    for fd, number in zip(above, numbers, strict=True):
        os.dup2(fd, number, inheritable=True)
    os.umask(0o022)
    os.chdir("/workspace")
    install_filter(order["filter"])
    os.execve(order["argv"][0], order["argv"], order["env"])


if __name__ == "__main__":
    main()
