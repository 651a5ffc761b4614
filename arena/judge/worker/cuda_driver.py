"""What judge and worker ask of the CUDA driver: memory that both map, a gate between them, and graphs in a chain.

Stand-alone (torch and cuda-bindings only), because the judge imports it and the worker gets a copy. Each buffer is an allocation
of its own: legacy CUDA IPC would map the allocator's whole block, and its neighbours with it.
Calls: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__VA.html and group__CUDA__MEMOP.html, group__CUDA__GRAPH.html
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from cuda.bindings import driver

FD = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
ON_DEVICE = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
AT_LEAST = int(driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ)
GATE_BYTES, DONE_OFFSET_BYTES = 512, 256
"""The gate's memory, and where the second of its two words lies."""


class CudaError(RuntimeError):
    """A call of the driver's API failed."""


def call(function: Any, *arguments: Any) -> Any:  # noqa: ANN401  the bindings are untyped
    """Call the driver. An error code becomes a CudaError; the results come back without the code."""
    status, *results = function(*arguments)
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise torch.OutOfMemoryError(f"{function.__name__}: {status.name}")
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CudaError(f"{function.__name__}: {status.name}")
    return results[0] if len(results) == 1 else results


class Bytes:
    """`size_bytes` of GPU memory mapped into this process. `tensor` is a uint8 view of it."""

    def __init__(self, handle: Any, size_bytes: int, mapped_bytes: int, device: int) -> None:  # noqa: ANN401
        self._handle, self._mapped_bytes, self._device = handle, mapped_bytes, device
        with ExitStack() as stack:
            self.address = call(driver.cuMemAddressReserve, mapped_bytes, 0, driver.CUdeviceptr(0), 0)
            stack.callback(call, driver.cuMemAddressFree, self.address, mapped_bytes)
            call(driver.cuMemMap, self.address, mapped_bytes, 0, handle, 0)
            stack.callback(call, driver.cuMemUnmap, self.address, mapped_bytes)
            access = driver.CUmemAccessDesc()
            access.location.type, access.location.id = ON_DEVICE, device
            access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            call(driver.cuMemSetAccess, self.address, mapped_bytes, [access], 1)
            self.__cuda_array_interface__ = {
                "shape": (size_bytes,),
                "typestr": "|u1",
                "data": (int(self.address), False),
                "version": 3,
                "strides": None,
            }
            self.tensor = torch.as_tensor(self, device=f"cuda:{device}")
            stack.pop_all()

    def close(self) -> None:
        """Unmap and release. No tensor made of it may be used afterwards."""
        torch.cuda.synchronize(self._device)
        del self.tensor
        call(driver.cuMemUnmap, self.address, self._mapped_bytes)
        call(driver.cuMemAddressFree, self.address, self._mapped_bytes)
        call(driver.cuMemRelease, self._handle)


def allocate(size_bytes: int, device: int) -> tuple[Bytes, int]:
    """New memory on `device`, and a file descriptor by which another process can map it."""
    torch.cuda.init()
    torch.empty(1, device=f"cuda:{device}")  # makes the device's context current in this thread
    mapped_bytes = _rounded(size_bytes, device)
    handle = call(driver.cuMemCreate, mapped_bytes, _wanted(device), 0)
    with ExitStack() as stack:
        stack.callback(call, driver.cuMemRelease, handle)
        fd = int(call(driver.cuMemExportToShareableHandle, handle, FD, 0))
        stack.callback(os.close, fd)
        memory = Bytes(handle, size_bytes, mapped_bytes, device)
        stack.pop_all()
    return memory, fd


def attach(fd: int, size_bytes: int, device: int) -> Bytes:
    """The memory behind a descriptor from `allocate`, mapped here too. The descriptor is closed."""
    torch.cuda.init()
    torch.empty(1, device=f"cuda:{device}")
    handle = call(driver.cuMemImportFromShareableHandle, fd, FD)
    os.close(fd)
    return Bytes(handle, size_bytes, _rounded(size_bytes, device), device)


class Gate:
    """Two 32-bit words in shared GPU memory. The judge opens the gate for call number n; the worker reports n as done.

    Each method queues one operation on torch's current stream, and the GPU carries it out in the stream's order. A waiting stream
    occupies no multiprocessor. Numbers only grow.
    """

    def __init__(self, memory: Bytes) -> None:
        self.memory = memory
        self._opened, self._done = (int(memory.address) + offset for offset in (0, DONE_OFFSET_BYTES))

    def open(self, number: int) -> None:
        """Let the worker's stream pass `wait_open(number)`."""
        write_word(self._opened, number)

    def wait_open(self, number: int) -> None:
        """Hold the stream until the judge has opened the gate for `number`."""
        wait_for_word(self._opened, number)

    def report_done(self, number: int) -> None:
        """Let the judge's stream pass `wait_done(number)`."""
        write_word(self._done, number)

    def wait_done(self, number: int) -> None:
        """Hold the stream until `number` is reported as done."""
        wait_for_word(self._done, number)


def write_word(address: int, number: int) -> None:
    """Queue the writing of a 32-bit word on torch's current stream."""
    call(driver.cuStreamWriteValue32, _stream(), driver.CUdeviceptr(address), driver.cuuint32_t(number), 0)


def wait_for_word(address: int, number: int) -> None:
    """Hold torch's current stream until the 32-bit word there is at least `number`."""
    call(driver.cuStreamWaitValue32, _stream(), driver.CUdeviceptr(address), driver.cuuint32_t(number), AT_LEAST)


class Chain:
    """Captured graphs as one launch, each starting when the one before it is complete."""

    def __init__(self, graphs: Sequence[torch.cuda.CUDAGraph]) -> None:
        self._graphs = graphs  # they own the memory of their temporaries
        last: list[Any] = []
        chain = call(driver.cuGraphCreate, 0)
        for graph in graphs:
            child = driver.CUgraph(graph.raw_cuda_graph())
            last = [call(driver.cuGraphAddChildGraphNode, chain, last, len(last), child)]
        self._launchable = call(driver.cuGraphInstantiate, chain, 0)
        call(driver.cuGraphDestroy, chain)

    def launch(self) -> None:
        """Queue all of them on torch's current stream."""
        call(driver.cuGraphLaunch, self._launchable, _stream())

    def close(self) -> None:
        """Release it. The GPU must have finished with it."""
        call(driver.cuGraphExecDestroy, self._launchable)


def forget_persisting() -> None:
    """Make every line of the L2 ordinary again, also lines that a submission set aside to outlive a window."""
    call(driver.cuCtxResetPersistingL2Cache)


def _stream() -> Any:  # noqa: ANN401
    return driver.CUstream(torch.cuda.current_stream().cuda_stream)


def _wanted(device: int) -> Any:  # noqa: ANN401
    """Plain memory on `device` that can be exported by descriptor."""
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type, wanted.location.id = ON_DEVICE, device
    wanted.requestedHandleTypes = FD
    return wanted


def _rounded(size_bytes: int, device: int) -> int:
    """The size that the driver maps: a multiple of its granularity, the same on both sides."""
    flag = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
    granularity = call(driver.cuMemGetAllocationGranularity, _wanted(device), flag)
    return -(-size_bytes // int(granularity)) * int(granularity)
