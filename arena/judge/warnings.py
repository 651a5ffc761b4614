"""Warnings that a passed score carries in its message."""

from __future__ import annotations

from collections.abc import Sequence

from arena.judge.evaluation import shape_text
from arena.schema import Evidence, Problem, ShapeScore

LEAST_SHARE = 0.99
"""Share of the formula's operations that the counters must show in the problem's arithmetic."""


def unexpected_arithmetic(problem: Problem, shapes: Sequence[ShapeScore], evidence: tuple[Evidence, ...]) -> str:
    """The shapes on which the counters show another arithmetic than the problem's; empty where there are none or no counters.

    A wider type may pass the correctness check, being more exact. It lowers the score, and earns this warning.
    """
    wanted = problem.arithmetic
    if wanted is None:
        return ""
    found = []
    for shape, seen in zip(shapes, evidence, strict=False):
        flops = problem.flops(shape.shape)
        if seen.proof != "counters" or shape.bound != "compute" or seen.tensor_ops.get(wanted, 0.0) >= LEAST_SHARE * flops:
            continue
        shares = ", ".join(f"{dtype} {ops / flops:.2f}" for dtype, ops in sorted(seen.tensor_ops.items())) or "nothing"
        found.append(f"{shape_text(shape.shape)} ({shares} of the work)")
    return f"not {wanted}: the tensor cores multiplied otherwise on {'; '.join(found)}" if found else ""
