"""fp8 times fp8 with a scale per row: what no sandbox sees. Stress inputs, further shapes, and the ceiling's arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .reference import OF_WEIGHTS, STRESS, Inputs, build, generators, stress
from .reference import make_inputs as make_public_inputs

CEILING_DTYPE = "fp8"

EXTRA_SHAPES: dict[str, tuple[dict[str, int], ...]] = {
    "cpu": (
        {"M": 48, "N": 40, "K": 96},
        {"M": 33, "N": 64, "K": 160},
        {"M": 1, "N": 264, "K": 1040},
        {"M": 7, "N": 24, "K": 16},
    ),
    "gpu": (
        {"M": 48, "N": 40, "K": 96},
        {"M": 33, "N": 64, "K": 160},
        {"M": 1, "N": 8, "K": 16},
        {"M": 131, "N": 2056, "K": 8208},
        {"M": 1000, "N": 1160, "K": 528},
    ),
}
"""Checked for correctness only. K stays below 16384, where a Hopper GPU's sums take over half of the tolerance (measured)."""

INPUT_CLASSES: tuple[str, ...] = STRESS


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str, device: str = "cpu") -> Inputs:
    """One stress set. Sizes depend on the shape alone. Class `public` is the public distribution."""
    if input_class == "public":
        return make_public_inputs(shape, seed, device=device)
    if input_class not in INPUT_CLASSES:
        raise ValueError(f"unknown input class {input_class!r} (known: public, {', '.join(INPUT_CLASSES)})")
    left, right = generators(seed, device)
    x, w, sx, sw = build(shape, left, right)
    if input_class == "zero_rows":
        x, sx = silenced(x, sx, left)
        w, sw = silenced(w, sw, right)
    else:
        x, sx = stress(input_class, x, sx, left)
    if input_class in OF_WEIGHTS and input_class != "zero_rows":
        w, sw = stress(input_class, w, sw, right)
    return x, w, sx, sw


def silenced(rows: Tensor, scale: Tensor, values: torch.Generator) -> tuple[Tensor, Tensor]:
    """With every eighth row, from a random one on, all zero and its scale 1."""
    first = torch.randint(0, 8, (1,), generator=values, device=values.device)
    off = ((torch.arange(len(rows), device=values.device) - first) % 8 == 0)[:, None]
    return rows.view(torch.uint8).masked_fill(off, 0).view(rows.dtype), scale.masked_fill(off, 1.0)
