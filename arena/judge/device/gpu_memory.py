"""Memory on a GPU that judge and worker share, and the gate between them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Literal

import torch

from arena.judge.device.memory import Buffer, Gate
from arena.judge.worker import cuda_driver

SHARE_CACHED = 1 / 16
"""Most of the device's memory that torch may keep for later in the judge: the submission may want it."""
TIMES_THE_CACHE = 3
QUEUE_LIMIT_S = 1.0
"""The judge's stream starts after this in any case. Queueing a window takes some milliseconds."""
RELEASE_LIMIT_S, POLL_S = 60.0, 1e-3
"""How long a released stream may take to become empty: it makes inputs and copies them."""
TURNS = threading.RLock()
"""Turns of checks that run side by side in one process, each on a stream of its own. A thread has the turn while its stream waits
for a worker, and while it makes and verifies inputs, takes memory, gives it back or waits for the device. For much of that the
driver waits for all streams, and Python's lock or its own may be held; the thread that would free another stream needs both."""


class CudaBuffer:
    """An allocation of its own, exported by descriptor."""

    def __init__(self, size_bytes: int, index: int, turns: threading.RLock) -> None:
        self._turns = turns
        with turns:
            torch.cuda.empty_cache()  # torch keeps what it freed, and this allocation does not come from torch
            self._memory, self.fd = cuda_driver.allocate(size_bytes, index)
        self.bytes = self._memory.tensor

    def close(self) -> None:
        del self.bytes
        with self._turns:
            self._memory.close()
        os.close(self.fd)


class CudaGate(cuda_driver.Gate):
    """The judge's side of one worker's gate. It is released in the stream `free`, in which nothing ever waits."""

    def __init__(self, index: int, free: torch.cuda.Stream, turns: threading.RLock) -> None:
        with turns, ExitStack() as stack:
            memory, self.fd = cuda_driver.allocate(cuda_driver.GATE_BYTES, index)
            stack.callback(os.close, self.fd)
            stack.callback(memory.close)
            memory.tensor.zero_()
            self._started = torch.zeros(1, dtype=torch.int32, pin_memory=True)
            torch.cuda.synchronize(index)
            stack.pop_all()
        super().__init__(memory)
        self._last, self._starts, self._free = 0, 0, free
        self._turns, self._has_turn = turns, False

    def next(self, rounds: int) -> int:
        first, self._last = self._last + 1, self._last + rounds
        return first

    @contextmanager
    def queued(self) -> Iterator[None]:
        if not self._has_turn:
            self._turns.acquire()
            self._has_turn = True
        self._starts += 1
        # A first use of the driver may wait for the device, and would wait for ever.
        start = threading.Timer(QUEUE_LIMIT_S, self._started.fill_, (self._starts,))
        start.start()
        try:
            cuda_driver.wait_for_word(self._started.data_ptr(), self._starts)
            yield
        finally:
            start.cancel()
            start.join()
            self._started.fill_(self._starts)

    def passed(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._turns.release()

    def release(self) -> None:
        try:
            passed = torch.cuda.Event()
            passed.record()
            until_s = time.monotonic() + RELEASE_LIMIT_S
            while not passed.query():
                with torch.cuda.stream(self._free):
                    self.report_done(self._last)
                if time.monotonic() > until_s:
                    raise RuntimeError(f"the judge's stream still waits {RELEASE_LIMIT_S:.0f} s after its worker's end")
                time.sleep(POLL_S)
        finally:
            self.passed()

    def close(self) -> None:
        with self._turns:
            self.memory.close()
        os.close(self.fd)


def own_workspace(device: str) -> None:
    """Have torch take cuBLAS's workspace for this thread and the current stream, which it keeps from then on.

    With nothing cached it has memory of its own. Taken later, it may lie in a cached block of gigabytes, and hold all of that.
    """
    torch.cuda.empty_cache()
    one = torch.ones(1, 1, dtype=torch.float64, device=device)
    torch.mm(one, one)


class CudaMemory:
    """The memory of GPU number `index`, as CUDA counts in this process.

    Freezing the worker's processes does not stop their kernels: kernels queued before could wait for inputs to arrive and work on
    them ahead. So inputs are made in staging, which only the judge has, and published in one copy just before the gate opens.
    Contexts share a GPU by time slices, so work of another context meanwhile lengthens that copy by as much, and by two changes.
    """

    kind: Literal["host", "cuda"] = "cuda"

    def __init__(self, index: int, *, shared: bool = False) -> None:
        self._index, self._shared = index, shared
        self._turns = TURNS if shared else threading.RLock()
        with self._turns:
            self._take(index)

    def _take(self, index: int) -> None:
        """Take what it needs on the device."""
        self.device = f"cuda:{index}"
        self._free = torch.cuda.Stream(index, priority=-1)
        cache_bytes = torch.cuda.get_device_properties(index).L2_cache_size
        self._junk = torch.zeros(TIMES_THE_CACHE * cache_bytes // 4, device=self.device)
        self._sum = torch.zeros((), device=self.device)
        self._junk[: len(self._junk) // 2].copy_(self._junk[-(len(self._junk) // 2) :])  # the driver's code for it is loaded now
        self._staging: CudaBuffer | None = None
        self._staging_lock = threading.Lock()
        own_workspace(self.device)
        # Read once, before any worker starts: a submission that hoards memory must not make the windows smaller.
        self._free_bytes, total_bytes = torch.cuda.mem_get_info(index)
        self._cache_bytes = int(total_bytes * SHARE_CACHED)

    def use_in_thread(self) -> None:
        torch.cuda.set_device(self._index)

    def turn(self) -> AbstractContextManager[object]:
        return self._turns

    def gate(self) -> Gate | None:
        return CudaGate(self._index, self._free, self._turns)

    def buffer(self, size_bytes: int) -> Buffer:
        return CudaBuffer(size_bytes, self._index, self._turns)

    def staging(self, buffer: Buffer) -> torch.Tensor:
        with self._staging_lock:  # workers build at the same time
            if self._staging is None or len(self._staging.bytes) < len(buffer.bytes):
                self.release_staging()
                self._staging = CudaBuffer(len(buffer.bytes), self._index, self._turns)
            return self._staging.bytes

    def release_staging(self) -> None:
        if self._staging is not None:
            self._staging.close()
            self._staging = None

    def make_cold(self) -> None:
        torch.sum(self._junk, dim=0, out=self._sum)

    def forget_persisting(self) -> None:
        with self._turns:
            cuda_driver.forget_persisting()

    def settle(self) -> None:
        with self._turns:
            torch.cuda.synchronize(self._index)

    def trim(self) -> None:
        if torch.cuda.memory_reserved(self._index) - torch.cuda.memory_allocated(self._index) > self._cache_bytes:
            with self._turns:
                torch.cuda.empty_cache()

    def free_bytes(self) -> int | None:
        return None if self._shared else self._free_bytes

    def peak_bytes(self, work: Callable[[], object]) -> int:
        with self._turns:
            torch.cuda.reset_peak_memory_stats(self._index)
            before_bytes = torch.cuda.memory_allocated(self._index)
            work()
            return torch.cuda.max_memory_allocated(self._index) - before_bytes

    def close(self) -> None:
        """Free what a score holds, where nothing on the device is in its way any more."""
        if torch.cuda.current_stream(self._index).query():
            self.release_staging()
