"""Memory that judge and worker both see, passed by file descriptor.

Two small interfaces make the judge independent of the device: `Buffer` here (memory), and the mode of a window (time).
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Protocol

import torch

# From <linux/fcntl.h>; Python 3.11's fcntl module has the names only on some builds.
F_ADD_SEALS = 1033
SEALS = 0x0001 | 0x0002 | 0x0004  # F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW


class Buffer(Protocol):
    """Bytes shared with one worker."""

    fd: int
    """What is sent to the worker."""
    bytes: torch.Tensor
    """The judge's view, uint8, on the device."""

    def close(self) -> None:
        """Give the memory back. Views made of `bytes` must not be used afterwards."""


class HostBuffer:
    """A memfd mapped on both sides.

    Sealed against resizing: a worker that could shrink the file would kill the judge with SIGBUS on its next access.
    """

    def __init__(self, size_bytes: int) -> None:
        self.fd = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size_bytes)
        fcntl.fcntl(self.fd, F_ADD_SEALS, SEALS)
        self._map = mmap.mmap(self.fd, size_bytes)
        self.bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    def close(self) -> None:
        # The map itself goes when the last view does; closing it under a live tensor would crash the judge.
        os.close(self.fd)
