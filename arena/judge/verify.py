"""Compare a window's sample with the reference, computed only now, after the outputs were committed."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from arena.errors import JudgeError
from arena.judge.code import Code, Inputs
from arena.judge.refusal import Refusal
from arena.judge.window import Committed, Draw, Sets
from arena.schema import Errors, Problem


def verify(window: Committed, sets: Sets, code: Code, problem: Problem, shape: Mapping[str, int]) -> Errors:
    """The worst errors over the sample; Refusal when one is beyond the gate or an input was changed.

    Sets made of the same draw must also agree with each other.
    """
    worst = Errors(rel_fro=0, row=0, el=0)
    first: dict[Draw, int] = {}
    for index, outputs in sorted(window.sample.items()):
        drawn = window.draws[index]
        inputs = code.make_inputs(shape, drawn.seed, drawn.kind, sets.memory.device)
        _unchanged(inputs, sets.input(index), problem, shape, drawn.kind)
        references = code.outputs(inputs)
        for name, out, ref in zip((t.name for t in problem.outputs), outputs, references, strict=True):
            worst = worse(worst, _within(name, out, ref, code, problem, shape, drawn.kind))
        twin = first.setdefault(drawn, index)
        if twin != index:
            _same(window.sample[twin], outputs, code, problem, shape, drawn.kind)
    return worst


def worse(a: Errors, b: Errors) -> Errors:
    """The larger of each error."""
    return Errors(rel_fro=max(a.rel_fro, b.rel_fro), row=max(a.row, b.row), el=max(a.el, b.el))


def _same(
    first: tuple[torch.Tensor, ...],
    second: tuple[torch.Tensor, ...],
    code: Code,
    problem: Problem,
    shape: Mapping[str, int],
    mode: str,
) -> None:
    """Refuse a solution whose two answers to the same inputs differ by more than the gate."""
    for a, b in zip(first, second, strict=True):
        errors = Errors(**code.errors(b, a.double()))
        if not _inside(errors, problem):
            text = f"Two calls on the same inputs gave different answers ({_against(errors, problem)})"
            raise Refusal("incorrect", text, shape=shape, mode=mode, error=errors)


def _within(
    name: str, out: torch.Tensor, ref: torch.Tensor, code: Code, problem: Problem, shape: Mapping[str, int], mode: str
) -> Errors:
    if not torch.isfinite(ref).all():
        raise JudgeError(
            f"{problem.name}: the reference is not finite for mode {mode!r}, shape {dict(shape)}: a fault of the problem"
        )
    if out.is_floating_point() and not (finite := torch.isfinite(out)).all():
        where = tuple(torch.nonzero(~finite)[0].tolist())
        text = f"{name}{list(where)} is {out[where].item()} where a finite value is expected"
        raise Refusal("incorrect", text, shape=shape, mode=mode)
    errors = Errors(**code.errors(out, ref))
    if _inside(errors, problem):
        return errors
    where = code.worst(out, ref)
    text = f"{name}{list(where)} is {out[where].item():.6g}, expected {ref[where].item():.6g} ({_against(errors, problem)})"
    raise Refusal("incorrect", text, shape=shape, mode=mode, error=errors)


def _inside(errors: Errors, problem: Problem) -> bool:
    gate = problem.tolerance
    return errors.rel_fro <= gate.rel_fro and errors.row <= gate.row and errors.el <= gate.el


def _against(errors: Errors, problem: Problem) -> str:
    gate = problem.tolerance
    pairs = zip(("rel_fro", "row", "el"), errors.model_dump().values(), gate.model_dump().values(), strict=True)
    return ", ".join(f"{name} {value:.2g} of {most:g}" for name, value, most in pairs)


def _unchanged(ours: Inputs, theirs: Inputs, problem: Problem, shape: Mapping[str, int], mode: str) -> None:
    for tensor, a, b in zip(problem.inputs, ours, theirs, strict=True):
        if not torch.equal(a.contiguous().view(torch.uint8), b.view(torch.uint8)):
            raise Refusal("incorrect", f"solution() changed its input {tensor.name}", shape=shape, mode=mode)
