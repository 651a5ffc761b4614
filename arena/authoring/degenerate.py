"""Does a problem's gate refuse answers that are not answers? Numerics only: no sandbox, no clock."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from arena.judge import problem_code
from arena.judge.problem_code import Inputs
from arena.judge.verify import within_tolerance
from arena.schema import Problem, Profile

SEED = 20
ROUNDED = "reference rounded"


def gate(problem: Problem, profile: Profile) -> Iterator[tuple[str, bool, str]]:
    """(what was tried, whether the gate did right, the errors) for every scored shape folded into the worst case."""
    loaded = problem_code.load(problem, profile)
    shapes = problem.shapes[profile]
    tried: dict[str, list[dict[str, float]]] = {}
    device = "cuda" if profile == "gpu" else "cpu"
    for shape in shapes:
        inputs = loaded.make_inputs(shape, SEED, "public", device)
        refs = loaded.outputs(inputs)
        for name, outs in _tries(problem, refs, inputs):
            measured = [errors for _, errors, _ in loaded.measure(outs, refs, inputs)]
            worst = {metric: max(errors[metric] for errors in measured) for metric in problem.tolerance}
            tried.setdefault(name, []).append(worst)
    for name, found in tried.items():
        honest = name == ROUNDED
        passed = [within_tolerance(errors, problem.tolerance) for errors in found]
        ok = all(passed) if honest else not any(passed)
        extreme = max if honest else min
        text = " ".join(f"{metric} {extreme(errors[metric] for errors in found):.1e}" for metric in problem.tolerance)
        count = f"accepted on {sum(passed)}" if honest else f"refused on {passed.count(False)}"
        yield f"gate: {name}", ok, f"{count} of {len(found)} tries; {text}"


def _tries(problem: Problem, refs: Inputs, inputs: Inputs) -> Iterator[tuple[str, Inputs]]:
    """The true answer as a kernel would round it, and the same with one output that no kernel may give."""
    dtypes = [getattr(torch, tensor.dtype) for tensor in problem.outputs]
    rounded = tuple(ref.to(dtype) for ref, dtype in zip(refs, dtypes, strict=True))
    yield ROUNDED, rounded
    for number, (ref, dtype) in enumerate(zip(refs, dtypes, strict=True)):
        for name, answer in _fakes(ref.double(), inputs):
            yield name, (*rounded[:number], answer.to(dtype), *rounded[number + 1 :])


def _fakes(ref: torch.Tensor, inputs: Inputs) -> Iterator[tuple[str, torch.Tensor]]:
    yield "zeros", torch.zeros_like(ref)
    yield "row mean", ref.mean(-1, keepdim=True).expand_as(ref)
    yield "constant", torch.full_like(ref, ref.mean().item())
    if ref.numel() > ref.shape[-1]:  # of a single row there is no other order
        yield "rows permuted", ref.reshape(-1, ref.shape[-1]).roll(1, 0).reshape(ref.shape)
    for number, tensor in enumerate(inputs):
        if tensor.shape == ref.shape and tensor.is_floating_point():
            yield f"copy of input {number}", tensor.double()
