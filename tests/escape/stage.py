"""A host of the suite's own: namespaces of its own for network, IPC, names and mounts, so that lures harm nobody and a wall that
falls leads nowhere. Only root can make it; a plain user plants what he can on the host as it is."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import socket
import struct
from pathlib import Path

from arena.sandboxes.bwrap import UIDS

libc = ctypes.CDLL(None, use_errno=True)
NAMESPACES = 0x00020000 | 0x40000000 | 0x08000000 | 0x04000000
"""Mount, net, ipc and uts."""
MS_REC_PRIVATE = 16384 | 1 << 18
HOST_NAME = "arena-lure-host"
CONTROL_UID, PLAIN_UID = UIDS[-1], UIDS[-2]
RESERVED = 400
"""Boxes of the suite take users after these: other tests may have boxes in the host's own network at the same time, where the
names that keep users apart are others."""


def checked(answer: int) -> None:
    """OSError when a call failed."""
    if answer:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def configure(name: bytes, address: str, control: socket.socket) -> None:
    """Give a (labelled) interface an address and start it."""
    fcntl.ioctl(control, 0x8916, struct.pack("16sHH", name, socket.AF_INET, 0) + socket.inet_aton(address) + bytes(8))
    fcntl.ioctl(control, 0x891C, struct.pack("16sHH", name, socket.AF_INET, 0) + socket.inet_aton("255.255.255.255") + bytes(8))
    flags = struct.unpack("16sH", fcntl.ioctl(control, 0x8913, struct.pack("16sH", name, 0))[:18])[1]
    fcntl.ioctl(control, 0x8914, struct.pack("16sH", name, flags | 1))


def stand_alone() -> None:
    """Leave the host's namespaces for new ones, with a loopback that has a metadata address too."""
    checked(libc.unshare(NAMESPACES))
    checked(libc.mount(b"none", b"/", None, MS_REC_PRIVATE, None))
    checked(libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777,size=64m"))
    checked(libc.sethostname(HOST_NAME.encode(), len(HOST_NAME)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        flags = struct.unpack("16sH", fcntl.ioctl(control, 0x8913, struct.pack("16sH", b"lo", 0))[:18])[1]
        fcntl.ioctl(control, 0x8914, struct.pack("16sH", b"lo", flags | 1))
        configure(b"lo:1", "169.254.169.254", control)
    Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0")  # of this network namespace


def reserve_users() -> list[socket.socket]:
    """Take the first users, as running boxes would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    taken = []
    for uid in UIDS[:RESERVED]:
        name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        name.bind(f"\0arena/uid/{uid}")
        taken.append(name)
    return taken


def become(uid: int) -> None:
    """Be that user and nobody else, for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    checked(libc.prctl(4, ctypes.c_ulong(1), 0, 0, 0))  # dumpable again, as any process of that user is
