"""What a number is labelled with, though it stands."""

from __future__ import annotations

from collections.abc import Sequence

from arena.judge.evaluation import words
from arena.schema import Evidence, Problem, ShapeScore

LEAST_SHARE = 0.99
"""Of the formula's operations that the counters must show in the arithmetic of the problem."""


def unlike(problem: Problem, shapes: Sequence[ShapeScore], found: tuple[Evidence, ...]) -> str:
    """Where the counters do not show the arithmetic that the problem is about, in words; empty where they do or were not read.

    A wider type may pass the gate, being more exact; what it costs is the score, and this label.
    """
    wanted = problem.arithmetic
    if wanted is None:
        return ""
    told = []
    for shape, evidence in zip(shapes, found, strict=False):
        flops = problem.flops(shape.shape)
        if (
            evidence.proof != "counters"
            or shape.bound != "compute"
            or evidence.tensor_ops.get(wanted, 0.0) >= LEAST_SHARE * flops
        ):
            continue
        seen = ", ".join(f"{kind} {ops / flops:.2f}" for kind, ops in sorted(evidence.tensor_ops.items())) or "nothing"
        told.append(f"{words(shape.shape)} ({seen} of the work)")
    return f"not {wanted}: the tensor cores multiplied otherwise on {'; '.join(told)}" if told else ""
