"""Memory that judge and worker share: the same views on both sides, and a size that the worker cannot change."""

import errno
import itertools
import mmap
import os

import pytest

torch = pytest.importorskip("torch")

from arena.judge.device.memory import ALIGN_BYTES, HostBuffer, layout  # noqa: E402

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


def test_layout_message_names_torch_dtypes():
    for _, dtype, _ in layout(SET).message()["slots"]:
        assert isinstance(getattr(torch, dtype), torch.dtype)
