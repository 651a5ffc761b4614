"""4-bit weights times bf16 activations: what no sandbox sees. Stress inputs, further shapes, and the ceiling's arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from .reference import Inputs, build, generators
from .reference import make_inputs as make_public_inputs

CEILING_DTYPE = "bf16"

EXTRA_SHAPES: dict[str, tuple[dict[str, int], ...]] = {
    "cpu": (
        {"M": 1, "N": 640, "K": 1536, "G": 128},
        {"M": 3, "N": 48, "K": 256, "G": 64},
        {"M": 3, "N": 48, "K": 256, "G": 128},
        {"M": 17, "N": 101, "K": 384, "G": 128},
        {"M": 37, "N": 33, "K": 704, "G": 64},
    ),
    "gpu": (
        {"M": 3, "N": 48, "K": 256, "G": 64},
        {"M": 17, "N": 4104, "K": 11008, "G": 128},
        {"M": 67, "N": 1001, "K": 2112, "G": 64},
        {"M": 1000, "N": 2047, "K": 3200, "G": 128},
        {"M": 777, "N": 2056, "K": 1152, "G": 64},
    ),
}
"""Checked for correctness only: most sizes here fill no tile, M is 1 only here on a CPU, and G 64 only here on a GPU."""

INPUT_CLASSES: tuple[str, ...] = (
    "uniform_zeros",
    "extreme_zeros",
    "wide_scales",
    "all_fifteen",
    "zero_scales",
    "one_hot",
    "scattered",
)


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str, device: str = "cpu") -> Inputs:
    """One stress set. Sizes depend on the shape and the input class alone. Class `public` is the public distribution."""
    if input_class == "public":
        return make_public_inputs(shape, seed, device=device)
    if input_class not in INPUT_CLASSES:
        raise ValueError(f"unknown input class {input_class!r} (known: public, {', '.join(INPUT_CLASSES)})")
    codes, values = generators(seed, device)
    x, qw, s, z = build(shape, codes, values)
    (M, K), (N, groups) = x.shape, s.shape
    match input_class:
        case "uniform_zeros":
            z = torch.randint(0, 16, z.shape, generator=codes, dtype=torch.uint8, device=device)
        case "extreme_zeros":
            z = 15 * torch.randint(0, 2, z.shape, generator=codes, dtype=torch.uint8, device=device)
        case "wide_scales":
            factor = torch.rand(s.shape, generator=values, device=device).mul_(math.log(1e4)).add_(math.log(1e-2)).exp_()
            s = (s.float() * factor).bfloat16()
        case "all_fifteen":
            # All weights have one sign, and so has x: a sum that cancels would ask more of a result than the tolerance means.
            x, qw = x.abs(), torch.full_like(qw, 0xFF)
        case "zero_scales":
            # A random group of every row, and of every eighth row all groups: those outputs are exactly zero.
            group = torch.randint(0, groups, (N, 1), generator=codes, device=device)
            s = s.scatter(1, group, 0.0)
            s[::8] = 0
        case "one_hot":
            channel = torch.randint(0, K, (M, 1), generator=codes, device=device)
            x = torch.zeros_like(x).scatter_(1, channel, 1.0)
        case "scattered":
            # As many large values as in public inputs, but in no channel more than in others.
            large = torch.rand(M, K, generator=codes, device=device) < 1 / 97
            x = (torch.randn(M, K, generator=values, device=device) * torch.where(large, 30.0, 1.0)).bfloat16()
    return x, qw, s, z
