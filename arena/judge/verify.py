"""Compare a window's sample of outputs with the reference, which is computed only after the outputs were copied."""

from __future__ import annotations

import torch

from arena.errors import JudgeError
from arena.judge.problem_code import Inputs, ProblemCode, Shape
from arena.judge.rejection import Rejection
from arena.judge.sets import InputSpec, Sets, WindowResult
from arena.schema import Errors, Problem, Tolerance


def verify(window: WindowResult, sets: Sets, code: ProblemCode, problem: Problem, shape: Shape) -> Errors:
    """The worst errors over the sample; Rejection when one is beyond its tolerance or an input was changed.

    Sets made from the same seed share one answer of the reference, and their outputs must also agree with each other.
    """
    worst: Errors = dict.fromkeys(problem.tolerance, 0.0)
    same_inputs: dict[InputSpec, list[int]] = {}
    for index in sorted(window.sample):
        same_inputs.setdefault(window.inputs[index], []).append(index)
    for (input_class, seed), indices in same_inputs.items():
        inputs = sets.made(indices[0]) or code.make_inputs(shape, seed, input_class, sets.memory.device)
        for index in indices if window.in_place else ():
            _unchanged(inputs, sets.input(index), problem, shape, input_class)
        refs = code.outputs(inputs)
        for index in indices:
            worst = worse(worst, _within(window.sample[index], refs, inputs, code, problem, shape, input_class))
        for index in indices[1:]:
            _same(window.sample[indices[0]], window.sample[index], inputs, code, problem, shape, input_class)
    return worst


def verify_own(code: ProblemCode, problem: Problem, shape: Shape, device: str) -> None:
    """Verify the reference's own answer, and describe its worst error, as for one that is wrong: to see what that takes."""
    inputs = code.make_inputs(shape, 0, "public", device)
    refs = code.outputs(inputs)
    outs = tuple(ref.to(getattr(torch, tensor.dtype)) for tensor, ref in zip(problem.outputs, refs, strict=True))
    for _, _, describe_worst in code.measure(outs, refs, inputs):
        describe_worst()
    _same(outs, outs, inputs, code, problem, shape, "public")


def written(outputs: Inputs, problem: Problem, shape: Shape) -> None:
    """Reject outputs (a row for each call) that hold NaN somewhere, as before the call. For inputs with finite answers only."""
    for tensor, rows in zip(problem.outputs, outputs, strict=True):
        if rows.is_floating_point() and bool((left := rows.isnan().any(1)).any()):
            which = f"Call {int(left.nonzero()[0]) + 1} of {len(rows)}" if len(rows) > 1 else "A call"
            text = f"{which} left elements of {tensor.name} unwritten, or wrote NaN"
            raise Rejection("incorrect", text, shape=shape, input_class="public")


def worse(a: Errors, b: Errors) -> Errors:
    """The larger of each error."""
    return {metric: max(a[metric], b[metric]) for metric in a}


def within_tolerance(errors: Errors, tolerance: Tolerance) -> bool:
    """Whether every error is within its tolerance; NaN never is."""
    return all(errors[metric] <= limit for metric, limit in tolerance.items())


def _same(
    first: Inputs, second: Inputs, inputs: Inputs, code: ProblemCode, problem: Problem, shape: Shape, input_class: str
) -> None:
    """Reject a solution whose two answers to the same inputs differ by more than the tolerance."""
    exact = tuple(a.double() if a.is_floating_point() else a for a in first)
    for _, errors, _ in code.measure(second, exact, inputs):
        if not within_tolerance(errors, problem.tolerance):
            text = f"Two calls on the same inputs gave different answers ({_against_tolerance(errors, problem)})"
            raise Rejection("incorrect", text, shape=shape, input_class=input_class, error=errors)


def _within(
    outs: Inputs, refs: Inputs, inputs: Inputs, code: ProblemCode, problem: Problem, shape: Shape, input_class: str
) -> Errors:
    """The errors of one call's outputs; Rejection when one is beyond its tolerance."""
    for tensor, out, ref in zip(problem.outputs, outs, refs, strict=True):
        _finite(tensor.name, out, ref, code, problem, shape, input_class)
    worst: Errors = dict.fromkeys(problem.tolerance, 0.0)
    for _, errors, describe_worst in code.measure(outs, refs, inputs):
        if not within_tolerance(errors, problem.tolerance):
            text = f"{describe_worst()} ({_against_tolerance(errors, problem)})"
            raise Rejection("incorrect", text, shape=shape, input_class=input_class, error=errors)
        worst = worse(worst, errors)
    return worst


def _finite(
    name: str, out: torch.Tensor, ref: torch.Tensor, code: ProblemCode, problem: Problem, shape: Shape, input_class: str
) -> None:
    """Reject an output that is not finite where it should be. A problem's own correctness check judges infinite answers."""
    if code.finite(ref) and code.finite(out):
        return
    sound = ~torch.isnan(ref) if code.own_check else torch.isfinite(ref)
    if not sound.all():
        text = f"{problem.name}: the reference is not finite for input class {input_class!r}, shape {dict(shape)}"
        raise JudgeError(f"{text}; mend its reference.py or hidden.py")
    bad = torch.isfinite(ref) & ~torch.isfinite(out)
    if bad.any():
        where = tuple(torch.nonzero(bad)[0].tolist())
        text = f"{name}{list(where) or ''} is {out[where].item()} where a finite value is expected"
        if out[where].isnan():
            text += "; elements that solution() leaves unwritten are NaN, too"
        raise Rejection("incorrect", text, shape=shape, input_class=input_class)


def _against_tolerance(errors: Errors, problem: Problem) -> str:
    return ", ".join(f"{metric} {errors[metric]:.2g} of {limit:g}" for metric, limit in problem.tolerance.items())


def _unchanged(made: Inputs, shared: Inputs, problem: Problem, shape: Shape, input_class: str) -> None:
    for tensor, wanted, seen in zip(problem.inputs, made, shared, strict=True):
        if not torch.equal(*_bits(wanted, seen)):
            raise Rejection("incorrect", f"solution() changed its input {tensor.name}", shape=shape, input_class=input_class)


def _bits(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Their bits, eight bytes at a time where that comes out even in all: a GPU compares these faster than bytes."""
    flat = [values.reshape(-1) for values in tensors]
    even = all((values.numel() | int(values.storage_offset())) * values.itemsize % 8 == 0 for values in flat)
    return [values.view(torch.int64 if even else torch.uint8) for values in flat]
