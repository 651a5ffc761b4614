"""Memory that judge and worker both see, passed by file descriptor.

Two small interfaces make the judge independent of the device: `Memory` here, and the mode of a window (worker.py).
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable
from typing import Literal, Protocol, TypeVar

import torch

T = TypeVar("T")

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


class Memory(Protocol):
    """Where the buffers of a score lie."""

    kind: Literal["host", "cuda"]
    device: str
    """torch's name for it, on the judge's side."""

    def buffer(self, size_bytes: int) -> Buffer:
        """A new shared buffer."""

    def staging(self, buffer: Buffer) -> torch.Tensor:
        """Where new inputs are made, uint8 and as large as `buffer`: out of the worker's sight where it could read on."""

    def publish(self, staged: torch.Tensor, buffer: Buffer, meanwhile: Callable[[], T]) -> tuple[float, T]:
        """Copy what was staged into the buffer and return as soon as it is there: the seconds it took by the device's clock.

        `meanwhile` is called while the copy is under way, and what it gives is returned too. 0 s where nothing is copied.
        """

    def settle(self) -> None:
        """Return when everything that the judge has ordered on the device is done."""

    def room_bytes(self) -> int | None:
        """The most that one shape's sets may take; None where the plan's own figure is the limit."""


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


class HostMemory:
    """The processor's memory. Whoever could read it is stopped while it is written, and that is proven."""

    kind: Literal["host", "cuda"] = "host"
    device = "cpu"

    def buffer(self, size_bytes: int) -> Buffer:
        return HostBuffer(size_bytes)

    def staging(self, buffer: Buffer) -> torch.Tensor:
        return buffer.bytes

    def publish(self, staged: torch.Tensor, buffer: Buffer, meanwhile: Callable[[], T]) -> tuple[float, T]:
        return 0.0, meanwhile()

    def settle(self) -> None:
        """Nothing runs behind the judge's back on a processor."""

    def room_bytes(self) -> int | None:
        return None
