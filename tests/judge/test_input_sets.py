"""Where the judge makes input sets, and from where it takes them to verify what came of them."""

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from arena.judge import problem_code  # noqa: E402
from arena.judge.device.memory import HostMemory, layout  # noqa: E402
from arena.judge.rejection import Rejection  # noqa: E402
from arena.judge.sets import InputSpec, Sets, WindowResult, make, write  # noqa: E402
from arena.judge.verify import _bits, verify  # noqa: E402


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


PUBLIC = InputSpec("public", 7)


def doubled(private: bool) -> tuple[Sets, Any, list[int]]:
    """One set of 64 numbers whose answer is twice as much, made where the worker sees it or apart; and the seeds used so far."""
    memory, floats, made = HostMemory(), layout([((64,), torch.float32)]), list[int]()
    inputs, outputs = (memory.buffer(floats.set_bytes) for _ in range(2))
    staged = torch.zeros_like(inputs.bytes) if private else memory.staging(inputs)

    def make_inputs(shape, seed, input_class, device):
        made.append(seed)
        return (torch.arange(64) + float(seed),)

    code: Any = SimpleNamespace(make_inputs=make_inputs, outputs=lambda given: (2 * given[0].double(),), own_check=False)
    code.finite = problem_code.kit("check").finite
    code.measure = lambda outs, refs, given: [(outs, {"el": float((outs[0] - refs[0]).abs().max())}, lambda: "wrong")]
    sets = Sets(memory, staged, inputs, outputs, floats, floats, 1)
    make(sets, [PUBLIC], code, {})
    if private:
        write(sets.stage(0), sets.input(0))
    return sets, code, made


def verified(sets: Sets, code: Any) -> dict[str, float]:
    """What is found where the answer is right."""
    window = WindowResult(1e-3, 0.0, [PUBLIC], {0: (2 * (torch.arange(64) + 7.0),)})
    names: Any = SimpleNamespace(tolerance={"el": 1e-6}, name="twice")
    names.inputs, names.outputs = [SimpleNamespace(name="x")], [SimpleNamespace(name="y")]
    return dict(verify(window, sets, code, names, {}))


@pytest.mark.parametrize(("private", "seeds"), [(True, [7]), (False, [7, 7])])
def test_inputs_that_only_the_judge_has_are_not_made_again(private: bool, seeds: list[int]) -> None:
    sets, code, made = doubled(private)
    assert verified(sets, code) == {"el": 0.0} and made == seeds


@pytest.mark.parametrize("offset", [0, 1, 8])
@pytest.mark.parametrize("size", [1, 15, 16])
def test_every_byte_is_compared_wherever_it_lies(size: int, offset: int) -> None:
    made, seen = torch.arange(24, dtype=torch.uint8)[offset:][:size], torch.arange(offset, offset + size).to(torch.uint8)
    assert torch.equal(*_bits(made, seen))
    for number in range(size):
        changed = seen.clone()
        changed[number] ^= 128
        assert not torch.equal(*_bits(made, changed))


@pytest.mark.parametrize("private", [True, False])
def test_a_changed_input_is_found(private: bool) -> None:
    """The answer is right for what the input was: what the worker sees is no reference."""
    sets, code, _ = doubled(private)
    sets.input(0)[0][5] += 1
    with pytest.raises(Rejection, match="solution\\(\\) changed its input x"):
        verified(sets, code)


def test_what_only_the_judge_has_is_what_counts() -> None:
    sets, code, _ = doubled(private=True)
    sets.stage(0)[0].add_(1)
    sets.input(0)[0].add_(1)
    with pytest.raises(Rejection, match="wrong"):
        verified(sets, code)
