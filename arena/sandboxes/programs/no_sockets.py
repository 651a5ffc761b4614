#!/opt/venv/bin/python -I
"""`no_sockets COMMAND...`: run the command where no process below it can make a unix socket in /workspace.

Two sandboxes share that folder: by a socket in it one could hand its open device files to the other. Landlock (Linux 5.19)
refuses the socket and nothing else: everywhere else sockets are made as before. Standard library only.
"""

import ctypes
import os
import sys

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION = 1
PATH_BENEATH = 1
MAKE_SOCK, REFER = 1 << 9, 1 << 13
REFER_ABI = 2
"""From here on a ruleset can allow moves between folders, which every ruleset refuses otherwise."""
SHARED = "workspace"
FAILED = 125


class Beneath(ctypes.Structure):
    """struct landlock_path_beneath_attr."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("access", ctypes.c_uint64), ("folder", ctypes.c_int32))


def available() -> bool:
    """Whether this kernel can do it."""
    return int(ctypes.CDLL(None).syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION)) >= REFER_ABI


def allow(libc: ctypes.CDLL, rules: int, path: str, access: int) -> None:
    """Let this be done below a folder."""
    folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        checked(libc, ADD_RULE, rules, PATH_BENEATH, ctypes.byref(Beneath(access, folder)), 0)
    finally:
        os.close(folder)


def checked(libc: ctypes.CDLL, number: int, *arguments: object) -> int:
    """A system call's result. OSError."""
    found = int(libc.syscall(number, *arguments))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def confine() -> None:
    """Refuse sockets in /workspace to this process and all below it. OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    handled = ctypes.c_uint64(MAKE_SOCK | REFER)
    rules = checked(libc, CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(8), 0)
    allow(libc, rules, "/", REFER)
    for entry in os.scandir("/"):
        if entry.name != SHARED and entry.is_dir(follow_symlinks=False):
            allow(libc, rules, entry.path, MAKE_SOCK)
    checked(libc, RESTRICT_SELF, rules, 0)
    os.close(rules)


def main() -> int:
    """Confine, and become the command."""
    if available():
        confine()
    try:
        os.execvp(sys.argv[1], sys.argv[1:])
    except OSError as error:
        print(f"{sys.argv[1]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main())
