"""Twice a vector: so simple that a failure is the machine's. How the input is drawn, and the exact answer in fp64."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

Inputs = tuple[Tensor]
"""x (n) fp32."""


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str = "public", device: str = "cpu") -> Inputs:
    """One input set. Its size depends on the shape alone, its values on the seed; torch's global generator is not used."""
    if input_class != "public":
        raise ValueError(f"unknown input class {input_class!r} (known: public)")
    return (torch.randn(shape["n"], device=device, generator=generator(seed, device)),)


def generator(seed: int, device: str) -> torch.Generator:
    """A generator of its own on `device`."""
    # torch's CPU generator keeps only the low 32 bits of its seed, so seeds are hashed: every bit of `seed` counts.
    made = torch.Generator(device)
    made.manual_seed(int.from_bytes(hashlib.blake2b(str(seed).encode(), digest_size=4).digest(), "little"))
    return made


def reference(x: Tensor) -> Tensor:
    """The answer (n) in fp64."""
    return 2 * x.double()
