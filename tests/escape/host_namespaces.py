"""Namespaces for the suite itself (network, IPC, host name, mounts): its lures harm nothing, and an escape leads nowhere.

Only root can create them. A plain user plants the lures that it can on the real host."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import socket
import struct
from pathlib import Path

from arena.sandboxes.lifecycle import UIDS

libc = ctypes.CDLL(None, use_errno=True)
NAMESPACES = 0x00020000 | 0x40000000 | 0x08000000 | 0x04000000
"""Mount, net, ipc and uts."""
MS_REC_PRIVATE = 16384 | 1 << 18
HOST_NAME = "arena-lure-host"
CONTROL_UID, PLAIN_UID = UIDS[-1], UIDS[-2]
RESERVED = 400
"""The suite's sandboxes take users after these. Other tests may run sandboxes in the host's network namespace at the same time,
and the socket names that reserve users are per network namespace."""


def check(result: int) -> None:
    """Raise OSError when a call failed."""
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def configure(name: bytes, address: str, control: socket.socket) -> None:
    """Give a (labelled) interface an address and start it."""
    fcntl.ioctl(control, 0x8916, struct.pack("16sHH", name, socket.AF_INET, 0) + socket.inet_aton(address) + bytes(8))
    fcntl.ioctl(control, 0x891C, struct.pack("16sHH", name, socket.AF_INET, 0) + socket.inet_aton("255.255.255.255") + bytes(8))
    flags = struct.unpack("16sH", fcntl.ioctl(control, 0x8913, struct.pack("16sH", name, 0))[:18])[1]
    fcntl.ioctl(control, 0x8914, struct.pack("16sH", name, flags | 1))


def enter() -> None:
    """Leave the host's namespaces for new ones, whose loopback also has the metadata address."""
    check(libc.unshare(NAMESPACES))
    check(libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None))
    check(libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777,size=64m"))
    check(libc.sethostname(HOST_NAME.encode(), len(HOST_NAME)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        flags = struct.unpack("16sH", fcntl.ioctl(control, 0x8913, struct.pack("16sH", b"lo", 0))[:18])[1]
        fcntl.ioctl(control, 0x8914, struct.pack("16sH", b"lo", flags | 1))
        configure(b"lo:1", "169.254.169.254", control)
    Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0")  # of this network namespace


def reserve_users() -> list[socket.socket]:
    """Reserve the first users, as running sandboxes would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    reserved = []
    for uid in UIDS[:RESERVED]:
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        name.bind(f"\0arena/uid/{uid}")
        reserved.append(name)
    return reserved


def switch_user(uid: int) -> None:
    """Switch to that user for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    check(libc.prctl(4, ctypes.c_ulong(1), 0, 0, 0))  # dumpable again, as any process of that user is
