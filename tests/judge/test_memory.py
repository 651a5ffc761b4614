"""What judge and worker share: the same views on both sides, and a size that nobody can change."""

import errno
import itertools
import mmap
import os

import pytest

torch = pytest.importorskip("torch")

from arena.judge.device.layout import ALIGN_BYTES, layout  # noqa: E402
from arena.judge.device.memory import HostBuffer  # noqa: E402

SET = [((3, 5), torch.bfloat16), ((7,), torch.int32), ((), torch.float64), ((2, 2), torch.float8_e4m3fn), ((0, 4), torch.float32)]


def test_sets_do_not_overlap_and_are_aligned():
    plan = layout(SET)
    buffer = HostBuffer(plan.set_bytes * 3)
    starts, spans = [], []
    for index in range(3):
        for view, (shape, dtype) in zip(plan.views(buffer.bytes, index), SET, strict=True):
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
def test_the_worker_cannot_change_the_size(size):
    buffer = HostBuffer(4096)
    with pytest.raises(OSError) as refused:
        os.ftruncate(buffer.fd, size)
    assert refused.value.errno == errno.EPERM


def test_the_worker_is_told_names_of_dtypes_that_torch_knows():
    for _, dtype, _ in layout(SET).message()["slots"]:
        assert isinstance(getattr(torch, dtype), torch.dtype)
