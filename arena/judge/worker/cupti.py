"""Which kernels this process launches, by CUPTI, the profiling interface of the CUDA driver.

Stand-alone (torch only), because the worker gets a copy. torch's own profiler reports the same and takes 6 s to start
(docs/measurements/judge.md, "Where a score's seconds go").
Calls and records: https://docs.nvidia.com/cupti/api/group__CUPTI__ACTIVITY__API.html
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

KERNEL = 10
"""CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL. Its record has had the next two fields at the same offsets since CUDA 9."""
START_OFFSET_BYTES, NAME_OFFSET_BYTES = 16, 104
SUCCESS, NO_MORE_RECORDS, FLUSH_FORCED = 0, 12, 1
BUFFER_BYTES = 1 << 25
"""Room for 150,000 kernels. CUPTI may give back a full buffer from a thread of its own, which needs Python's lock: a thread that
launches a kernel and waits for CUPTI could hold that."""

Request = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
Complete = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class CuptiError(RuntimeError):
    """A call of CUPTI failed."""


class Recorder:
    """Records which kernels run. One at a time: CUPTI knows one pair of callbacks."""

    def __init__(self, library: Any = None) -> None:  # noqa: ANN401  a library of ctypes
        self._library = library or ctypes.CDLL(f"libcupti.so.{str(torch.version.cuda).split('.', maxsplit=1)[0]}")
        self._buffers: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self._filled: list[tuple[int, int]] = []
        self._callbacks = Request(self._request), Complete(self._complete)  # kept here: CUPTI holds them, too
        self._call("cuptiActivityRegisterCallbacks", *self._callbacks)

    def kernels_of(self, launch: Callable[[], None]) -> list[str]:
        """The names of the kernels that run from the launch until the GPU is idle, in the order of their starts."""
        torch.cuda.synchronize()
        self._call("cuptiActivityEnable", KERNEL)
        try:
            launch()
            torch.cuda.synchronize()
        except BaseException:
            with suppress(CuptiError):  # what the launch raised comes first
                self._recorded()
            raise
        return [demangled(name) for _, name in sorted(self._recorded())]

    def _recorded(self) -> list[tuple[int, bytes]]:
        """End the recording: (start, name) of its kernels."""
        self._call("cuptiActivityDisable", KERNEL)
        self._call("cuptiActivityFlushAll", FLUSH_FORCED)
        filled, self._filled = self._filled, []
        found = [record for address, size_bytes in filled for record in self._records(address, size_bytes)]
        for address, _ in filled:
            del self._buffers[address]
        return found

    def _records(self, address: int, size_bytes: int) -> list[tuple[int, bytes]]:
        """(start, name) of the kernels in one buffer."""
        found, record = [], ctypes.c_void_p()
        where = ctypes.c_void_p(address), ctypes.c_size_t(size_bytes), ctypes.byref(record)
        while (status := self._library.cuptiActivityGetNextRecord(*where)) == SUCCESS:
            at = record.value or 0
            if ctypes.c_uint32.from_address(at).value == KERNEL:
                name = ctypes.c_char_p.from_address(at + NAME_OFFSET_BYTES).value
                found.append((ctypes.c_uint64.from_address(at + START_OFFSET_BYTES).value, name or b"?"))
        if status != NO_MORE_RECORDS:
            raise CuptiError(f"cuptiActivityGetNextRecord: error {status}")
        return found

    def _request(self, buffer: Any, size: Any, most_records: Any) -> None:  # noqa: ANN401  pointers
        """Give CUPTI a buffer."""
        memory = ctypes.create_string_buffer(BUFFER_BYTES)
        address = ctypes.addressof(memory)
        self._buffers[address] = memory
        buffer[0], size[0], most_records[0] = address, BUFFER_BYTES, 0

    def _complete(self, context: int, stream: int, buffer: int, size: int, valid: int) -> None:
        """Take one back that holds `valid` bytes of records."""
        self._filled.append((buffer, valid))

    def _call(self, name: str, *arguments: object) -> None:
        if status := getattr(self._library, name)(*arguments):
            raise CuptiError(f"{name}: error {status}")


@functools.cache
def demangled(name: bytes) -> str:
    """A C++ name as it stands in the source; other names as they are."""
    text = None
    if name.startswith(b"_Z"):
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
        demangle.restype = ctypes.c_char_p  # what it returns is not freed: there are few names, and this process ends soon
        text = demangle(name, None, None, None)
    return (text or name).decode("utf-8", "replace")
