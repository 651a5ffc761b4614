"""Memory that the judge and the worker share, passed by file descriptor, and where each tensor lies in it.

Two small interfaces make the judge independent of the device: `Memory` here, and the launch mode of a window (worker/main.py).
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

ALIGN_BYTES = 256
"""What CUDA's allocator aligns to; more than any vector load needs."""
# From <linux/fcntl.h>; Python 3.11's fcntl module has the names only on some builds.
F_ADD_SEALS = 1033
SEALS = 0x0001 | 0x0002 | 0x0004  # F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW


class Buffer(Protocol):
    """Bytes shared with one worker."""

    fd: int
    """The descriptor that the judge sends to the worker."""
    bytes: torch.Tensor
    """The judge's view, uint8, on the device."""

    def close(self) -> None:
        """Release the memory. Views of `bytes` must not be used afterwards."""


class Gate(Protocol):
    """Where the worker's stream and the judge's wait for each other on a GPU (worker/cuda_driver.py)."""

    fd: int
    """The descriptor that the judge sends to the worker."""

    def next(self, rounds: int) -> int:
        """The first of that many fresh numbers."""

    def queued(self) -> AbstractContextManager[None]:
        """Hold the judge's stream until all that the block queues is there, so that none of it waits for the host. Nothing in the
        block may wait for the stream or take new memory from the driver. Until `passed` or `release` no other check in this
        process does either."""

    def open(self, number: int) -> None:
        """Let the worker's stream pass, when the judge's stream comes to this."""

    def wait_done(self, number: int) -> None:
        """Hold the judge's stream until the worker's reports that number as done."""

    def passed(self) -> None:
        """Let other checks in this process have the device: nothing that `queued` held is left in the judge's stream."""

    def release(self) -> None:
        """Let the judge's stream pass every wait of a dead worker's. Return once it is empty; RuntimeError when it never is."""

    def close(self) -> None:
        """Release the gate's memory."""


class Memory(Protocol):
    """Where the buffers of a score lie."""

    kind: Literal["host", "cuda"]
    device: str
    """torch's name for it, on the judge's side."""

    def use_in_thread(self) -> None:
        """Let the calling thread compute on this device: a new thread of CUDA is on GPU 0, whatever its maker uses."""

    def turn(self) -> AbstractContextManager[object]:
        """The device for this thread alone, among checks that run side by side in this process."""

    def gate(self) -> Gate | None:
        """A new gate for one worker: two that shared one could stop each other. None where the judge's own clock is used."""

    def buffer(self, size_bytes: int) -> Buffer:
        """A new shared buffer."""

    def staging(self, buffer: Buffer) -> torch.Tensor:
        """Where the judge makes new inputs, uint8 and as large as `buffer`: hidden from a worker whose GPU work goes on.

        There is one such place: a second call takes it away from the first.
        """

    def release_staging(self) -> None:
        """Give its memory back until it is next asked for."""

    def make_cold(self) -> None:
        """Queue a read that leaves nothing else in the last cache."""

    def forget_persisting(self) -> None:
        """Make every line of the last cache ordinary again, also lines that a submission set aside to outlive a window."""

    def settle(self) -> None:
        """Wait until all work that the judge has queued on the device is done."""

    def trim(self) -> None:
        """Give back what the judge keeps for later, if that is much. The driver clears it, which slows the device for a while."""

    def free_bytes(self) -> int | None:
        """What was free on a GPU before any worker started; None where sets are bounded otherwise, or others take memory, too."""

    def peak_bytes(self, work: Callable[[], object]) -> int:
        """Do this work of the judge's, and return the most GPU memory that its tensors held at once; 0 where none is limited."""


class HostBuffer:
    """A memfd mapped on both sides.

    Sealed against resizing: a worker that could shrink the file would kill the judge with SIGBUS on its next access.
    """

    def __init__(self, size_bytes: int) -> None:
        self.fd = os.memfd_create("arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, size_bytes)
            fcntl.fcntl(self.fd, F_ADD_SEALS, SEALS)
            self._map = mmap.mmap(self.fd, size_bytes)
        except BaseException:
            os.close(self.fd)
            raise
        self.bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    def close(self) -> None:
        # The map ends with its last view; closing it under a live tensor would crash the judge.
        os.close(self.fd)


class HostMemory:
    """The processor's memory. The worker, which could read it, is frozen while it is written; CPU time proves that."""

    kind: Literal["host", "cuda"] = "host"
    device = "cpu"

    def use_in_thread(self) -> None:
        """Do nothing: there is one processor."""

    def turn(self) -> AbstractContextManager[object]:
        return nullcontext()

    def gate(self) -> Gate | None:
        return None

    def buffer(self, size_bytes: int) -> Buffer:
        return HostBuffer(size_bytes)

    def staging(self, buffer: Buffer) -> torch.Tensor:
        return buffer.bytes

    def release_staging(self) -> None:
        """Do nothing: it is the buffer itself."""

    def make_cold(self) -> None:
        """Do nothing: a window's sets are larger than the caches of one core."""

    def forget_persisting(self) -> None:
        """Do nothing: a processor sets no lines aside."""

    def settle(self) -> None:
        """Do nothing: the judge queues no work on a processor."""

    def trim(self) -> None:
        """Do nothing: what was freed is the system's again."""

    def free_bytes(self) -> int | None:
        return None

    def peak_bytes(self, work: Callable[[], object]) -> int:
        """Leave the work: nothing depends on the figure here."""
        return 0


@dataclass(frozen=True)
class Slot:
    """One tensor of a set."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    offset_bytes: int

    @property
    def size_bytes(self) -> int:
        """What its elements take."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Layout:
    """All tensors of one set, and the distance from one set to the next."""

    slots: tuple[Slot, ...]
    set_bytes: int

    def views(self, buffer: torch.Tensor, index: int) -> tuple[torch.Tensor, ...]:
        """The tensors of set `index` inside `buffer` (uint8), sharing its memory."""
        found = []
        for slot in self.slots:
            start = index * self.set_bytes + slot.offset_bytes
            found.append(buffer[start : start + slot.size_bytes].view(slot.dtype).view(slot.shape))
        return tuple(found)

    def message(self) -> dict[str, Any]:
        """The layout as the judge sends it to the worker."""
        slots = [[list(slot.shape), str(slot.dtype).removeprefix("torch."), slot.offset_bytes] for slot in self.slots]
        return {"slots": slots, "set_bytes": self.set_bytes}


def layout(tensors: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> Layout:
    """A layout for tensors of these shapes and dtypes, each aligned to `ALIGN_BYTES`."""
    slots, offset = [], 0
    for shape, dtype in tensors:
        slots.append(Slot(shape, dtype, offset))
        offset += -(-math.prod(shape) * dtype.itemsize // ALIGN_BYTES) * ALIGN_BYTES
    return Layout(tuple(slots), max(offset, ALIGN_BYTES))
