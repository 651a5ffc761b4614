"""Compensated softmax: what no sandbox sees. Stress inputs, further shapes, and the arithmetic that the ceiling counts."""

from __future__ import annotations

from collections.abc import Mapping

from .reference import STRESS, Inputs, generators, stress
from .reference import make_inputs as make_public_inputs

CEILING_DTYPE = "fp32"

EXTRA_SHAPES: dict[str, tuple[dict[str, int], ...]] = {
    "cpu": ({"R": 64, "V": 1000}, {"R": 33, "V": 4097}),
    "gpu": ({"R": 64, "V": 1000}, {"R": 33, "V": 4097}, {"R": 100, "V": 32771}, {"R": 40, "V": 300007}),
}
"""Checked for correctness only. All shapes have 32 rows or more: a sum that is not compensated is close to 1 by luck in up to
half of its rows, and never in all of so many."""

INPUT_CLASSES: tuple[str, ...] = STRESS


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str, device: str = "cpu") -> Inputs:
    """One stress set. Sizes depend on the shape and the input class alone. Class `public` is the public distribution."""
    if input_class == "public":
        return make_public_inputs(shape, seed, device=device)
    if input_class not in INPUT_CLASSES:
        raise ValueError(f"unknown input class {input_class!r} (known: public, {', '.join(INPUT_CLASSES)})")
    places, values = generators(seed, device)
    return (stress(input_class, shape["R"], shape["V"], places, values),)
