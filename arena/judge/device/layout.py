"""Where each tensor of a set lies inside a shared buffer. Sets follow each other; both sides make the same views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

ALIGN_BYTES = 256
"""What CUDA's allocator aligns to; more than any vector load needs."""


@dataclass(frozen=True)
class Slot:
    """One tensor of a set."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    offset_bytes: int


@dataclass(frozen=True)
class Layout:
    """All tensors of one set, and the distance from one set to the next."""

    slots: tuple[Slot, ...]
    set_bytes: int

    def views(self, buffer: torch.Tensor, index: int) -> tuple[torch.Tensor, ...]:
        """The tensors of set `index` inside `buffer` (uint8), sharing its memory."""
        base = index * self.set_bytes
        return tuple(_view(buffer, base + slot.offset_bytes, slot.shape, slot.dtype) for slot in self.slots)

    def message(self) -> dict[str, Any]:
        """The layout as the judge sends it to the worker."""
        slots = [[list(slot.shape), str(slot.dtype).removeprefix("torch."), slot.offset_bytes] for slot in self.slots]
        return {"slots": slots, "set_bytes": self.set_bytes}


def layout(tensors: Sequence[tuple[tuple[int, ...], torch.dtype]]) -> Layout:
    """A layout for tensors of these shapes and dtypes, each aligned to `ALIGN_BYTES`."""
    slots = []
    offset = 0
    for shape, dtype in tensors:
        slots.append(Slot(shape, dtype, offset))
        offset += _aligned(math.prod(shape) * dtype.itemsize)
    return Layout(tuple(slots), max(offset, ALIGN_BYTES))


def _aligned(size: int) -> int:
    return -(-size // ALIGN_BYTES) * ALIGN_BYTES


def _view(buffer: torch.Tensor, start: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return buffer[start : start + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)
