"""Memory on a GPU that judge and worker share."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal

import torch

from arena.judge.device.memory import Buffer, T
from arena.judge.worker import vmm

SHARE_OF_FREE = 0.25
"""Most of the free device memory that one shape's sets may take. Staging takes as much again, and the solution needs some."""


class CudaBuffer:
    """An allocation of its own, exported by descriptor."""

    def __init__(self, size_bytes: int, index: int) -> None:
        self._memory, self.fd = vmm.allocate(size_bytes, index)
        self.bytes = self._memory.tensor

    def close(self) -> None:
        del self.bytes
        self._memory.close()
        os.close(self.fd)


class CudaMemory:
    """The memory of GPU number `index`, as CUDA counts in this process.

    Freezing the worker's processes does not stop their kernels: kernels queued before could wait for inputs to arrive and work on
    them ahead. So inputs are made in staging, which only the judge has, and published in one copy that ends just before t0.
    Contexts share a GPU by time slices, so work of another context meanwhile lengthens that copy by as much.
    """

    kind: Literal["host", "cuda"] = "cuda"

    def __init__(self, index: int) -> None:
        self._index = index
        self.device = f"cuda:{index}"
        # Read once, before any worker starts: a submission that hoards memory must not make the windows smaller.
        torch.cuda.empty_cache()
        self._room_bytes = int(torch.cuda.mem_get_info(index)[0] * SHARE_OF_FREE)

    def buffer(self, size_bytes: int) -> Buffer:
        return CudaBuffer(size_bytes, self._index)

    def staging(self, buffer: Buffer) -> torch.Tensor:
        return torch.empty_like(buffer.bytes)

    def publish(self, staged: torch.Tensor, buffer: Buffer, meanwhile: Callable[[], T]) -> tuple[float, T]:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        buffer.bytes.copy_(staged)
        end.record()
        result = meanwhile()
        end.synchronize()
        vmm.forget_persisting()
        return float(begin.elapsed_time(end)) / 1e3, result

    def settle(self) -> None:
        torch.cuda.synchronize(self._index)

    def room_bytes(self) -> int | None:
        return self._room_bytes
