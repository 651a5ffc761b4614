"""Does a problem's gate refuse answers that are not answers? Numerics only: no sandbox, no clock."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from arena.judge import code
from arena.schema import Problem, Profile

SEED = 20


def gate(problem: Problem, profile: Profile) -> Iterator[tuple[str, bool, str]]:
    """(what was tried, whether the gate did right, the errors) for every scored shape folded into the worst case."""
    loaded = code.load(problem, profile)
    shapes = problem.shapes[profile]
    tried: dict[str, list[dict[str, float]]] = {}
    device = "cuda" if profile == "gpu" else "cpu"
    for shape in shapes:
        inputs = loaded.make_inputs(shape, SEED, "public", device)
        for ref, tensor in zip(loaded.outputs(inputs), problem.outputs, strict=True):
            dtype = getattr(torch, tensor.dtype)
            for name, answer in _answers(ref, inputs):
                tried.setdefault(name, []).append(loaded.errors(answer.to(dtype), ref))
    for name, found in tried.items():
        honest = name == "reference rounded"
        inside = [all(errors[key] <= getattr(problem.tolerance, key) for key in errors) for errors in found]
        ok = all(inside) if honest else not any(inside)
        extreme = max if honest else min
        text = " ".join(f"{key} {extreme(errors[key] for errors in found):.1e}" for key in found[0])
        count = f"accepted on {sum(inside)}" if honest else f"refused on {inside.count(False)}"
        yield f"gate: {name}", ok, f"{count} of {len(found)} shapes; {text}"


def _answers(ref: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> Iterator[tuple[str, torch.Tensor]]:
    """The true answer as a kernel would round it, and answers that no kernel may give."""
    yield "reference rounded", ref
    yield "zeros", torch.zeros_like(ref)
    yield "row mean", ref.mean(-1, keepdim=True).expand_as(ref)
    yield "constant", torch.full_like(ref, ref.mean().item())
    if ref.numel() > ref.shape[-1]:  # of a single row there is no other order
        yield "rows permuted", ref.reshape(-1, ref.shape[-1]).roll(1, 0).reshape(ref.shape)
    for number, tensor in enumerate(inputs):
        if tensor.shape == ref.shape and tensor.is_floating_point():
            yield f"copy of input {number}", tensor.double()
