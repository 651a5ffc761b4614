"""The k largest of every row: what no sandbox sees. Stress inputs, further shapes, and the arithmetic of the ceiling."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .reference import STRESS, Inputs, draw, generators, ranks
from .reference import make_inputs as make_public_inputs

CEILING_DTYPE = "fp32"

EXTRA_SHAPES: dict[str, tuple[dict[str, int], ...]] = {
    "cpu": (
        {"rows": 5, "n": 1000, "k": 7},
        {"rows": 3, "n": 64, "k": 64},
        {"rows": 2, "n": 33, "k": 1},
        {"rows": 9, "n": 300, "k": 201},
        {"rows": 1, "n": 131071, "k": 64},
    ),
    "gpu": (
        {"rows": 5, "n": 1000, "k": 7},
        {"rows": 3, "n": 64, "k": 64},
        {"rows": 2, "n": 33, "k": 1},
        {"rows": 1, "n": 131071, "k": 64},
        {"rows": 301, "n": 3001, "k": 2048},
        {"rows": 7, "n": 1000003, "k": 1000},
    ),
}
"""Checked for correctness only: short rows, and k that is most of n or all of it, are only here."""

INPUT_CLASSES: tuple[str, ...] = STRESS


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str, device: str = "cpu") -> Inputs:
    """One stress set. Sizes depend on the shape alone. Class `public` is the public distribution."""
    if input_class == "public":
        return make_public_inputs(shape, seed, device=device)
    if input_class not in INPUT_CLASSES:
        raise ValueError(f"unknown input class {input_class!r} (known: public, {', '.join(INPUT_CLASSES)})")
    places, values = generators(seed, device)
    z = torch.randn(shape["rows"], shape["n"], generator=values, device=device)
    return draw(input_class, z, shape["k"], places, values), ranks(shape["k"], device)
