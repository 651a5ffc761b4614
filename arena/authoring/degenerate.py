"""Degenerate answers, which every problem's tolerance must reject. Numerics only: no sandbox, no clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from arena.authoring.finding import Finding
from arena.judge import problem_code
from arena.judge.problem_code import Inputs
from arena.judge.verify import within_tolerance
from arena.schema import Problem, Profile

SEED = 20
ROUNDED = "reference rounded"


def check(problem: Problem, profile: Profile, folder: Path | None = None) -> Iterator[Finding]:
    """Compare degenerate answers, and the rounded reference, with the reference on every scored shape.

    The tolerance must accept the rounded reference and reject the others. `folder` holds a problem that is not in problems/.
    """
    code = problem_code.load(problem, profile, folder)
    found: dict[str, list[dict[str, float]]] = {}
    device = "cuda" if profile == "gpu" else "cpu"
    for shape in problem.shapes[profile]:
        inputs = code.make_inputs(shape, SEED, "public", device)
        refs = code.outputs(inputs)
        for name, outs in _answers(problem, refs, inputs):
            measured = [errors for _, errors, _ in code.measure(outs, refs, inputs)]
            worst = {metric: max(errors[metric] for errors in measured) for metric in problem.tolerance}
            found.setdefault(name, []).append(worst)
    for name, answers in found.items():
        honest = name == ROUNDED
        accepted = [within_tolerance(errors, problem.tolerance) for errors in answers]
        extreme = max if honest else min
        errors = " ".join(f"{metric} {extreme(answer[metric] for answer in answers):.1e}" for metric in problem.tolerance)
        count = f"accepted {sum(accepted)}" if honest else f"rejected {accepted.count(False)}"
        yield Finding(
            kind="degenerate",
            name=f"degenerate: {name}" if not honest else ROUNDED,
            ok=all(accepted) if honest else not any(accepted),
            got="accepted" if any(accepted) else "rejected",
            detail=f"{count} of {len(answers)} answers; {errors}",
        )


def _answers(problem: Problem, refs: Inputs, inputs: Inputs) -> Iterator[tuple[str, Inputs]]:
    """The reference's answer as a kernel rounds it, and the same with one output replaced by a degenerate one."""
    dtypes = [getattr(torch, tensor.dtype) for tensor in problem.outputs]
    rounded = tuple(ref.to(dtype) for ref, dtype in zip(refs, dtypes, strict=True))
    yield ROUNDED, rounded
    for number, (ref, dtype) in enumerate(zip(refs, dtypes, strict=True)):
        for name, answer in _degenerate(ref.double(), inputs):
            yield name, (*rounded[:number], answer.to(dtype), *rounded[number + 1 :])


def _degenerate(ref: torch.Tensor, inputs: Inputs) -> Iterator[tuple[str, torch.Tensor]]:
    """What a kernel may return that has computed little. An output, or a row, of one element is its own mean."""
    columns = ref.shape[-1] if ref.dim() else 1
    yield "zeros", torch.zeros_like(ref)
    if columns > 1:
        yield "row mean", ref.mean(-1, keepdim=True).expand_as(ref)
    if ref.numel() > 1:
        yield "constant", torch.full_like(ref, ref.mean().item())
    if ref.numel() > columns:  # of a single row there is no other order
        yield "rows permuted", ref.reshape(-1, columns).roll(1, 0).reshape(ref.shape)
    for number, tensor in enumerate(inputs):
        if tensor.shape == ref.shape and tensor.is_floating_point():
            yield f"copy of input {number}", tensor.double()
