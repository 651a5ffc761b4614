"""The names of the kernels that a process launches. CUPTI itself needs a GPU; here a library in its place fills the records."""

import ctypes
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from arena.judge.worker.cupti import BUFFER_BYTES, KERNEL, CuptiError, Recorder, demangled

RECORD_BYTES = 216
"""Of CUpti_ActivityKernel10, the largest so far."""
OTHER = 5
"""The kind of a record that is not of a kernel."""


@pytest.fixture(autouse=True)
def _idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


class Library:
    """CUPTI with these records (kind, start, name), so many to a buffer."""

    def __init__(self, records: list[tuple[int, int, bytes]], to_a_buffer: int = 100, status: int = 12) -> None:
        self.records, self.to_a_buffer, self.status = records, to_a_buffer, status
        self.happened: list[object] = []
        self.read = dict[int, int]()

    def cuptiActivityRegisterCallbacks(self, request: Callable[..., None], complete: Callable[..., None]) -> int:  # noqa: N802
        self.request, self.complete = request, complete
        return 0

    def cuptiActivityEnable(self, kind: int) -> int:  # noqa: N802
        self.happened.append(("on", kind))
        return 0

    def cuptiActivityDisable(self, kind: int) -> int:  # noqa: N802
        self.happened.append(("off", kind))
        return 0

    def cuptiActivityFlushAll(self, flag: int) -> int:  # noqa: N802
        self.happened.append("flush")
        self.read.clear()
        for first in range(0, len(self.records), self.to_a_buffer):
            some = self.records[first : first + self.to_a_buffer]
            buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(7)
            self.request(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most))
            assert (size.value, most.value) == (BUFFER_BYTES, 0) and (buffer.value or 1) % 8 == 0
            for number, (kind, start, name) in enumerate(some):
                at = (buffer.value or 0) + number * RECORD_BYTES
                self.kept = [*getattr(self, "kept", []), ctypes.create_string_buffer(name)]
                ctypes.c_uint32.from_address(at).value = kind
                ctypes.c_uint64.from_address(at + 16).value = start
                ctypes.c_void_p.from_address(at + 104).value = ctypes.addressof(self.kept[-1])
            self.complete(None, 0, buffer, BUFFER_BYTES, len(some) * RECORD_BYTES)
        return 0

    def cuptiActivityGetNextRecord(self, buffer: Any, valid: Any, record: Any) -> int:  # noqa: N802
        begin = buffer.value
        at = self.read.get(begin, begin)
        if at >= begin + valid.value:
            return self.status
        self.read[begin] = at + RECORD_BYTES
        record._obj.value = at
        return 0


def test_kernels_are_named_in_the_order_of_their_starts() -> None:
    records = [(KERNEL, 30, b"third"), (OTHER, 5, b"no kernel"), (KERNEL, 10, b"first"), (KERNEL, 20, b"second")]
    library = Library(records, to_a_buffer=3)
    recorder = Recorder(library)
    assert library.happened == [], "it records nothing before"
    assert recorder.kernels_of(lambda: library.happened.append("launch")) == ["first", "second", "third"]
    assert library.happened == [("on", KERNEL), "launch", ("off", KERNEL), "flush"]


def test_each_call_has_its_own_kernels() -> None:
    """A call that fails leaves none to the next."""
    library = Library([(KERNEL, 1, b"early")])
    recorder = Recorder(library)

    def fails() -> None:
        raise ValueError("it failed")

    with pytest.raises(ValueError, match="it failed"):
        recorder.kernels_of(fails)
    library.records = [(KERNEL, 2, b"late")]
    assert recorder.kernels_of(lambda: None) == ["late"]
    assert recorder.kernels_of(lambda: None) == ["late"]
    assert not recorder._buffers, "each is 32 MB"


def test_what_a_launch_raises_comes_before_what_the_library_does() -> None:
    recorder = Recorder(Library([(KERNEL, 1, b"k")], status=1))

    def fails() -> None:
        raise ValueError("it failed")

    with pytest.raises(ValueError, match="it failed"):
        recorder.kernels_of(fails)


def test_nothing_launched_is_no_kernel() -> None:
    assert Recorder(Library([])).kernels_of(lambda: None) == []


def test_an_error_of_the_library_is_an_error() -> None:
    with pytest.raises(CuptiError, match="cuptiActivityGetNextRecord: error 1"):
        Recorder(Library([(KERNEL, 1, b"k")], status=1)).kernels_of(lambda: None)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"_ZN2at6native6kernelIfEEvPT_", "void at::native::kernel<float>(float*)"),
        (b"paged_attention_kernel", "paged_attention_kernel"),
        (b"f", "f"),  # as a type's name it would be `float`
        (b"_Z", "_Z"),
        (b"_Zno_such_name", "_Zno_such_name"),
        (b"\xff", "\ufffd"),
    ],
)
def test_names_of_c_plus_plus_are_written_as_in_the_source(name: bytes, shown: str) -> None:
    assert demangled(name) == shown
