"""Softmax whose rows sum to 1 far beyond fp32: how the inputs are drawn, the exact answer in fp64, and what is measured."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

Inputs = tuple[Tensor]
"""x (R, V) fp32."""

U = 2.0**-24
"""Half of what fp32 numbers just above 1 lie apart."""
SMALLEST = 1.2e-38
"""Numbers below fp32's smallest normal one, 1.18e-38, may come out as 0."""


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str = "public", device: str = "cpu") -> Inputs:
    """One input set. Sizes depend on the shape alone, values on the seed; torch's global generator is not used."""
    if input_class != "public":
        raise ValueError(f"unknown input class {input_class!r} (known: public)")
    places, values = generators(seed, device)
    spread = torch.randint(1, 3, (shape["R"], 1), generator=places, device=device)
    return (torch.randn(shape["R"], shape["V"], generator=values, device=device) * spread,)


def generators(seed: int, device: str) -> tuple[torch.Generator, torch.Generator]:
    """Two generators on `device`: for places and choices, and for values."""
    # torch's CPU generator keeps only the low 32 bits of its seed, so seeds are hashed: every bit of `seed` counts.
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
    places, values = torch.Generator(device), torch.Generator(device)
    places.manual_seed(int.from_bytes(digest[:4], "little"))
    values.manual_seed(int.from_bytes(digest[4:], "little"))
    return places, values


def reference(x: Tensor) -> Tensor:
    """The answer (R, V) in fp64."""
    return x.double().softmax(-1)


def errors(outs: tuple[Tensor], refs: tuple[Tensor], inputs: Inputs) -> dict[str, float]:
    """The worst of all rows and of all elements, as `mass` and `el` below; each is to be at most the limit of its name."""
    return {"mass": float(mass(outs[0], refs[0]).max()), "el": float(el(outs[0], refs[0], inputs[0]).max())}


def mass(y: Tensor, p: Tensor) -> Tensor:
    """(R): how far a row's sum is off 1, in units of U (0.01 + sqrt(sum p**2)).

    An error of exp stands in the numerator and in the denominator alike and cancels. What is left is the error of the sum and
    of the division, and the rounding of the single y, which averages out to about 0.3 U sqrt(sum p**2).
    """
    return (y.double().sum(-1) - 1).abs() / (U * (0.01 + p.pow(2).sum(-1).sqrt()))


def el(y: Tensor, p: Tensor, x: Tensor) -> Tensor:
    """(R, V): how far an element is off, in units of U p (1 + 0.375 |x - max x|). Rounding x - max x alone costs up to
    U |x - max x|. Infinite where x is -inf and y is not 0."""
    none = x == -torch.inf
    depth = (x.amax(-1, keepdim=True).double() - x).masked_fill_(none, 0)
    off = ((y.double() - p).abs() - torch.where(none, 0, SMALLEST)).clamp_min_(0)
    return torch.where(off > 0, off / (U * p * (1 + 0.375 * depth)), 0)


def worst(outs: tuple[Tensor], refs: tuple[Tensor], inputs: Inputs) -> str:
    """The row whose sum is off most, and the element that is."""
    (y,), (p,), (x,) = outs, refs, inputs
    row, at = int(mass(y, p).argmax()), int(el(y, p, x).argmax())
    r, i = divmod(at, x.shape[-1])
    off = float(y[row].double().sum() - 1)
    total = f"1 {'-' if off < 0 else '+'} {abs(off):.3g}"
    return f"row {row} sums to {total}; y[{r}, {i}] is {y[r, i]:.8g} and should be {p[r, i]:.8g}"
