"""GPU memory that two processes share by file descriptor, through the driver's virtual-memory API.

Stand-alone (torch and cuda-bindings only), because the judge imports it and the worker gets a copy. Each buffer is an allocation
of its own: legacy CUDA IPC would map the allocator's whole block, and its neighbours with it.
Calls: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__VA.html
"""

from __future__ import annotations

import os
from typing import Any

import torch
from cuda.bindings import driver

FD = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
ON_DEVICE = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE


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
        self._handle, self._mapped_bytes = handle, mapped_bytes
        self._address = call(driver.cuMemAddressReserve, mapped_bytes, 0, driver.CUdeviceptr(0), 0)
        call(driver.cuMemMap, self._address, mapped_bytes, 0, handle, 0)
        access = driver.CUmemAccessDesc()
        access.location.type, access.location.id = ON_DEVICE, device
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        call(driver.cuMemSetAccess, self._address, mapped_bytes, [access], 1)
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (int(self._address), False),
            "version": 3,
            "strides": None,
        }
        self.tensor = torch.as_tensor(self, device=f"cuda:{device}")

    def close(self) -> None:
        """Unmap and release. No tensor made of it may be used afterwards."""
        torch.cuda.synchronize()
        del self.tensor
        call(driver.cuMemUnmap, self._address, self._mapped_bytes)
        call(driver.cuMemAddressFree, self._address, self._mapped_bytes)
        call(driver.cuMemRelease, self._handle)


def allocate(size_bytes: int, device: int) -> tuple[Bytes, int]:
    """New memory on `device`, and a file descriptor by which another process can map it."""
    torch.cuda.init()
    torch.empty(1, device=f"cuda:{device}")  # makes the device's context current in this thread
    mapped_bytes = _rounded(size_bytes, device)
    handle = call(driver.cuMemCreate, mapped_bytes, _wanted(device), 0)
    fd = int(call(driver.cuMemExportToShareableHandle, handle, FD, 0))
    return Bytes(handle, size_bytes, mapped_bytes, device), fd


def attach(fd: int, size_bytes: int, device: int) -> Bytes:
    """The memory behind a descriptor from `allocate`, mapped here too. The descriptor is closed."""
    torch.cuda.init()
    torch.empty(1, device=f"cuda:{device}")
    handle = call(driver.cuMemImportFromShareableHandle, fd, FD)
    os.close(fd)
    return Bytes(handle, size_bytes, _rounded(size_bytes, device), device)


def forget_persisting() -> None:
    """Make every line of the L2 ordinary again, also lines that a submission set aside to outlive a window."""
    call(driver.cuCtxResetPersistingL2Cache)


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
