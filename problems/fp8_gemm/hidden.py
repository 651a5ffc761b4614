"""fp8 times fp8 with a scale per row: what no sandbox sees. Stress inputs, further shapes, and the ceiling's arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from .reference import LARGEST, Inputs, build, generators
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

INPUT_CLASSES: tuple[str, ...] = ("largest", "zero_rows", "wide_scales", "subnormal", "last_places")


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str, device: str = "cpu") -> Inputs:
    """One stress set. Sizes depend on the shape alone. Class `public` is the public distribution."""
    if input_class == "public":
        return make_public_inputs(shape, seed, device=device)
    if input_class not in INPUT_CLASSES:
        raise ValueError(f"unknown input class {input_class!r} (known: public, {', '.join(INPUT_CLASSES)})")
    left, right = generators(seed, device)
    x, w, sx, sw = build(shape, left, right)
    match input_class:
        case "largest":
            # Their products are 49 * 2**12: sums that a Hopper GPU cuts to 14 bits lose nothing below 2**26.
            x, w = (torch.where(t.float() < 0, -LARGEST, LARGEST).to(t.dtype) for t in (x, w))
        case "zero_rows":
            x, sx = silenced(x, sx, left)
            w, sw = silenced(w, sw, right)
        case "wide_scales":
            sx, sw = wide(sx, left), wide(sw, right)
        case "subnormal":
            x, w = (subnormal(t, values) for t, values in ((x, left), (w, right)))
        case "last_places":
            # All that x has is one of the last 16 columns: what is there may not be left out.
            place = x.shape[1] - 1 - int(torch.randint(0, 16, (1,), generator=left, device=device))
            kept = x[:, place].clone()
            x = torch.zeros_like(x)
            x[:, place] = kept
    return x, w, sx, sw


def silenced(rows: Tensor, scale: Tensor, values: torch.Generator) -> tuple[Tensor, Tensor]:
    """With every eighth row, from a random one on, all zero and its scale 1."""
    first = torch.randint(0, 8, (1,), generator=values, device=values.device)
    off = ((torch.arange(len(rows), device=values.device) - first) % 8 == 0)[:, None]
    return rows.view(torch.uint8).masked_fill(off, 0).view(rows.dtype), scale.masked_fill(off, 1.0)


def wide(scale: Tensor, values: torch.Generator) -> Tensor:
    """Log-uniform from 1e-4 to 1e4."""
    return torch.rand(scale.shape, generator=values, device=values.device).mul_(math.log(1e8)).add_(math.log(1e-4)).exp_()


def subnormal(like: Tensor, values: torch.Generator) -> Tensor:
    """Values below e4m3's smallest normal number, 2**-6: multiples of 2**-9 from -7 to 7."""
    count = torch.randint(-7, 8, like.shape, generator=values, device=values.device)
    return (count * 2.0**-9).to(like.dtype)
