"""What the outputs hold before a call."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from arena.judge.device.memory import HostMemory, layout  # noqa: E402
from arena.judge.sets import Sets, poison  # noqa: E402

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8)


def sets(*kinds: Any, shape: tuple[int, ...] = (1024,)) -> Sets:
    """Two sets of outputs of these kinds, all zeros."""
    memory = HostMemory()
    outputs = layout([(shape, kind) for kind in kinds])
    buffer = memory.buffer(2 * outputs.set_bytes)
    return Sets(memory, buffer.bytes, buffer, buffer, outputs, outputs, 2)


@pytest.mark.parametrize("shape", [(1024,), (), (0,)])
def test_floats_are_nan_before_a_call(shape: tuple[int, ...]) -> None:
    made = sets(*FLOATS, *INTEGERS, shape=shape)
    poison(made, 1, seed=1)
    assert all(view.double().isnan().all() for view in made.output(0)[: len(FLOATS)])


def test_integers_are_random_over_their_full_range_before_a_call() -> None:
    made = sets(*INTEGERS, torch.bool)
    poison(made, 1, seed=1)
    first = [view.clone() for view in made.output(0)]
    for view in first[:-1]:
        limits = torch.iinfo(view.dtype)
        assert len(view.unique()) > 200
        low, high = (limits.min + 0.02 * (limits.max - limits.min), limits.max - 0.02 * (limits.max - limits.min))
        assert view.double().min() < low and view.double().max() > high
    assert first[-1].view(torch.uint8).unique().tolist() == [0, 1]
    assert not any(view.view(torch.uint8).any() for view in made.output(1))
    poison(made, 1, seed=2)
    assert all(not torch.equal(old, new) for old, new in zip(first, made.output(0), strict=True))
