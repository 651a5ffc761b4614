"""Twice a vector: the judge's own inputs and sizes, and the arithmetic that the ceiling counts."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .reference import Inputs, generator
from .reference import make_inputs as make_public_inputs

CEILING_DTYPE = "fp32"

EXTRA_SHAPES: dict[str, tuple[dict[str, int], ...]] = {"cpu": ({"n": 4099},), "gpu": ({"n": 4099},)}
"""A prime: the last block of a kernel is not full."""

INPUT_CLASSES: tuple[str, ...] = ("wide",)


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str, device: str = "cpu") -> Inputs:
    """One input set of the class `wide`, or of the public distribution."""
    if input_class == "public":
        return make_public_inputs(shape, seed, device=device)
    if input_class not in INPUT_CLASSES:
        raise ValueError(f"unknown input class {input_class!r} (known: public, {', '.join(INPUT_CLASSES)})")
    values = generator(seed, device)
    exponent = torch.rand(shape["n"], device=device, generator=values).mul_(60).sub_(30)
    return (torch.randn(shape["n"], device=device, generator=values).mul_(10**exponent),)
