"""Kimi Delta Attention: what no sandbox sees. Stress inputs, further shapes, and the arithmetic that the ceiling counts."""

from __future__ import annotations

from collections.abc import Mapping

from .reference import Head, Inputs, build, generators
from .reference import make_inputs as make_public_inputs

CEILING_DTYPE = "bf16"

EXTRA_SHAPES: dict[str, tuple[dict[str, int], ...]] = {
    "cpu": (
        {"B": 1, "T": 100, "H": 2, "D": 64},
        {"B": 2, "T": 65, "H": 1, "D": 128},
        {"B": 3, "T": 1, "H": 4, "D": 64},
        {"B": 1, "T": 2304, "H": 4, "D": 128},
    ),
    "gpu": (
        {"B": 1, "T": 100, "H": 2, "D": 64},
        {"B": 2, "T": 65, "H": 1, "D": 128},
        {"B": 5, "T": 1, "H": 12, "D": 128},
        {"B": 3, "T": 777, "H": 5, "D": 64},
        {"B": 1, "T": 2111, "H": 7, "D": 128},
    ),
}
"""Checked for correctness only: one token, one more than 64, a head size that is in no public shape, and on a CPU a sequence so
long that a late start or a state in bf16 shows.

No smaller D: with 16 channels the rows of an honest kernel that rounds its operands to bf16 are off by up to 2.3e-2 (measured).
"""

CLASSES = {
    "strong_decay": [Head(least=1e-2, most=8.0)],
    "weak_decay": [Head(least=1e-4, most=0.02)],
    "no_decay": [Head()],
    "correlated_keys": [Head(common=1.0)],
    # The second kind has decays that a state in bf16 loses.
    "beta_near_zero": [Head(lean=-6.9, spread=0.5), Head(least=1e-6, most=1e-4, lean=-6.9, spread=0.5)],
    "beta_near_one": [Head(lean=7.0)],
    "zero_state": [Head(empty=1.0)],
}
"""The kinds of heads of a set."""
INPUT_CLASSES: tuple[str, ...] = tuple(CLASSES)


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str, device: str = "cpu") -> Inputs:
    """One stress set. Sizes depend on the shape alone. Class `public` is the public distribution."""
    if input_class == "public":
        return make_public_inputs(shape, seed, device=device)
    if input_class not in INPUT_CLASSES:
        raise ValueError(f"unknown input class {input_class!r} (known: public, {', '.join(INPUT_CLASSES)})")
    gates, values = generators(seed, device)
    inputs = build(shape, gates, values, CLASSES[input_class])
    if input_class == "no_decay":
        inputs[3].zero_()
    return inputs
