"""Where the judge makes input sets."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from arena.judge.device.memory import HostMemory, layout  # noqa: E402
from arena.judge.sets import InputSpec, Sets, make  # noqa: E402


def test_what_a_window_names_twice_is_made_once_and_copied() -> None:
    memory, floats = HostMemory(), layout([((64,), torch.float32)])
    inputs, outputs = (memory.buffer(4 * floats.set_bytes) for _ in range(2))
    sets, made = Sets(memory, memory.staging(inputs), inputs, outputs, floats, floats, 4), []

    def make_inputs(shape, seed, input_class, device):
        made.append((seed, input_class))
        return (torch.full((64,), 10.0 * seed + len(input_class)),)

    asked = [InputSpec("public", 1), InputSpec("wide", 1), InputSpec("public", 1), InputSpec("public", 2)]
    code: Any = type("Code", (), {"make_inputs": staticmethod(make_inputs)})
    make(sets, asked, code, {})
    assert made == [(1, "public"), (1, "wide"), (2, "public")]
    assert [sets.input(index)[0].unique().tolist() for index in range(4)] == [[16.0], [14.0], [16.0], [26.0]]
    assert all(sets.output(index)[0].isnan().all() for index in range(4))
