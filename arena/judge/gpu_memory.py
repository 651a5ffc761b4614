"""The judge's side of a GPU: shared memory on it, and whether anything but the judge runs there. CUDA only."""

from __future__ import annotations

import os
from typing import Literal

import torch

from arena.judge import vmm
from arena.judge.buffers import Buffer

SHARE_OF_FREE = 0.25
"""Most of the free device memory that one shape's sets may take; the solution needs some too."""

PROBE_BYTES, PROBE_COPIES = 64 << 20, 24
"""About a millisecond of copying on an H200: longer than one time slice of the driver's."""
PROBES = 3
DISTURBED = 1.4
"""Slower than alone by this factor in the best of `PROBES` tries means that somebody else was on the GPU."""


class CudaBuffer:
    """One allocation of its own, exported by descriptor."""

    def __init__(self, size_bytes: int, index: int) -> None:
        self._memory, self.fd = vmm.allocate(size_bytes, index)
        self.bytes = self._memory.tensor

    def close(self) -> None:
        del self.bytes
        self._memory.close()
        os.close(self.fd)


class CudaMemory:
    """The memory of GPU number `index`, as CUDA counts in this process."""

    kind: Literal["host", "cuda"] = "cuda"

    def __init__(self, index: int) -> None:
        self._index = index
        self.device = f"cuda:{index}"
        self._source = torch.zeros(PROBE_BYTES, dtype=torch.uint8, device=self.device)
        self._target = torch.empty_like(self._source)
        self._probe_s()
        self._alone_s = min(self._probe_s() for _ in range(5 * PROBES))

    def buffer(self, size_bytes: int) -> Buffer:
        return CudaBuffer(size_bytes, self._index)

    def settle(self) -> None:
        torch.cuda.synchronize(self._index)

    def disturbed(self) -> bool:
        """A kernel left running takes time slices from the judge's own: the probe then takes twice its time or more."""
        return min(self._probe_s() for _ in range(PROBES)) > DISTURBED * self._alone_s

    def _probe_s(self) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(PROBE_COPIES):
            self._target.copy_(self._source)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def room_bytes(self) -> int | None:
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self._index)[0] * SHARE_OF_FREE)
