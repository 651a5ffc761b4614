"""Compare a window's sample with the reference, computed only now, after the outputs were committed."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from arena.errors import JudgeError
from arena.judge.problem_code import Code, Inputs
from arena.judge.rejection import Rejection
from arena.judge.window import Committed, Draw, Sets
from arena.schema import Errors, Problem, Tolerance


def verify(window: Committed, sets: Sets, code: Code, problem: Problem, shape: Mapping[str, int]) -> Errors:
    """The worst errors over the sample; Refusal when one is beyond the gate or an input was changed.

    Sets made of the same draw share one answer of the reference, and must also agree with each other.
    """
    worst: Errors = dict.fromkeys(problem.tolerance, 0.0)
    places: dict[Draw, list[int]] = {}
    for index in sorted(window.sample):
        places.setdefault(window.draws[index], []).append(index)
    for drawn, indices in places.items():
        inputs = code.make_inputs(shape, drawn.seed, drawn.kind, sets.memory.device)
        for index in indices:
            _unchanged(inputs, sets.input(index), problem, shape, drawn.kind)
        refs = code.outputs(inputs)
        for index in indices:
            worst = worse(worst, _within(window.sample[index], refs, inputs, code, problem, shape, drawn.kind))
        for index in indices[1:]:
            _same(window.sample[indices[0]], window.sample[index], inputs, code, problem, shape, drawn.kind)
    return worst


def worse(a: Errors, b: Errors) -> Errors:
    """The larger of each error."""
    return {metric: max(a[metric], b[metric]) for metric in a}


def inside(errors: Errors, tolerance: Tolerance) -> bool:
    """Whether every error is within the gate; NaN never is."""
    return all(errors[metric] <= most for metric, most in tolerance.items())


def _same(
    first: Inputs, second: Inputs, inputs: Inputs, code: Code, problem: Problem, shape: Mapping[str, int], input_class: str
) -> None:
    """Refuse a solution whose two answers to the same inputs differ by more than the gate."""
    exact = tuple(a.double() if a.is_floating_point() else a for a in first)
    for _, errors, _ in code.measure(second, exact, inputs):
        if not inside(errors, problem.tolerance):
            text = f"Two calls on the same inputs gave different answers ({_against(errors, problem)})"
            raise Rejection("incorrect", text, shape=shape, input_class=input_class, error=errors)


def _within(
    outs: Inputs, refs: Inputs, inputs: Inputs, code: Code, problem: Problem, shape: Mapping[str, int], input_class: str
) -> Errors:
    """The errors of one call's outputs against the reference's; Refusal when one is beyond the gate."""
    for tensor, out, ref in zip(problem.outputs, outs, refs, strict=True):
        _finite(tensor.name, out, ref, code, problem, shape, input_class)
    worst: Errors = dict.fromkeys(problem.tolerance, 0.0)
    for _, errors, place in code.measure(outs, refs, inputs):
        if not inside(errors, problem.tolerance):
            raise Rejection(
                "incorrect", f"{place()} ({_against(errors, problem)})", shape=shape, input_class=input_class, error=errors
            )
        worst = worse(worst, errors)
    return worst


def _finite(
    name: str, out: torch.Tensor, ref: torch.Tensor, code: Code, problem: Problem, shape: Mapping[str, int], input_class: str
) -> None:
    """Refuse an output that is not finite where it should be. Infinite answers are for a gate of the problem's own to judge."""
    sound = ~torch.isnan(ref) if code.own_check else torch.isfinite(ref)
    if not sound.all():
        raise JudgeError(
            f"{problem.name}: the reference is not finite for input class {input_class!r}, shape {dict(shape)}; mend the problem"
        )
    bad = torch.isfinite(ref) & ~torch.isfinite(out)
    if bad.any():
        where = tuple(torch.nonzero(bad)[0].tolist())
        text = f"{name}{list(where) or ''} is {out[where].item()} where a finite value is expected"
        if problem.outputs_given and out[where].isnan():
            text += "; what solution() leaves unwritten is NaN, too"
        raise Rejection("incorrect", text, shape=shape, input_class=input_class)


def _against(errors: Errors, problem: Problem) -> str:
    return ", ".join(f"{metric} {errors[metric]:.2g} of {most:g}" for metric, most in problem.tolerance.items())


def _unchanged(ours: Inputs, theirs: Inputs, problem: Problem, shape: Mapping[str, int], input_class: str) -> None:
    for tensor, a, b in zip(problem.inputs, ours, theirs, strict=True):
        if not torch.equal(*(t.reshape(-1).view(torch.uint8) for t in (a, b))):
            raise Rejection("incorrect", f"solution() changed its input {tensor.name}", shape=shape, input_class=input_class)
