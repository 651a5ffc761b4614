"""Memory that judge and worker share: the same views on both sides, and a size that the worker cannot change."""

import errno
import itertools
import mmap
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from arena.judge.buffers import reserve  # noqa: E402
from arena.judge.device.memory import ALIGN_BYTES, HostBuffer, HostMemory, layout  # noqa: E402

SET = [((3, 5), torch.bfloat16), ((7,), torch.int32), ((), torch.float64), ((2, 2), torch.float8_e4m3fn), ((0, 4), torch.float32)]


def test_sets_are_aligned_and_do_not_overlap():
    sets = layout(SET)
    buffer = HostBuffer(sets.set_bytes * 3)
    starts, spans = [], []
    for index in range(3):
        for view, (shape, dtype) in zip(sets.views(buffer.bytes, index), SET, strict=True):
            assert tuple(view.shape) == shape and view.dtype == dtype and view.is_contiguous()
            starts.append((view.data_ptr() - buffer.bytes.data_ptr()) % ALIGN_BYTES)
            if view.numel():
                spans.append((view.data_ptr(), view.data_ptr() + view.nbytes))
    assert set(starts) == {0}
    spans.sort()
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    assert spans[-1][1] <= buffer.bytes.data_ptr() + buffer.bytes.numel()


def test_both_sides_see_the_same_memory():
    buffer = HostBuffer(4096)
    other = mmap.mmap(os.dup(buffer.fd), 4096)
    buffer.bytes[10] = 77
    assert other[10] == 77
    other[11] = 5
    assert buffer.bytes[11] == 5


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_worker_cannot_resize_a_buffer(size):
    buffer = HostBuffer(4096)
    with pytest.raises(OSError) as caught:
        os.ftruncate(buffer.fd, size)
    assert caught.value.errno == errno.EPERM


def test_no_buffer_is_left_where_the_next_has_no_memory():
    """Else the judge would keep the memory of a worker that is rejected, and later scores in this process would have less."""
    memory, made = HostMemory(), list[Any]()

    class Short:
        def buffer(self, size_bytes):
            if made:
                raise MemoryError
            made.append(memory.buffer(size_bytes))
            return made[0]

    worker: Any = SimpleNamespace(buffers=None, resume=lambda: None)
    context: Any = SimpleNamespace(memory=Short(), fits=lambda *sizes: True)
    with pytest.raises(MemoryError):
        reserve(context, worker, 4096, 4096)
    assert worker.buffers is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made[0].fd)


def test_no_descriptor_is_left_of_a_buffer_that_cannot_be_made():
    before = list(Path("/proc/self/fd").iterdir())
    with pytest.raises((OSError, ValueError, OverflowError)):
        HostBuffer(1 << 62)
    assert len(list(Path("/proc/self/fd").iterdir())) == len(before)


def test_layout_message_names_torch_dtypes():
    for _, dtype, _ in layout(SET).message()["slots"]:
        assert isinstance(getattr(torch, dtype), torch.dtype)
