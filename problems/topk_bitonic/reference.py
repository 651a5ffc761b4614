"""The k largest of every row: how the inputs are drawn, the exact answer, and what counts as one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

Inputs = tuple[Tensor, Tensor]
"""x (rows, n) fp32, ranks (k) int32."""


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str = "public", device: str = "cpu") -> Inputs:
    """One input set. Sizes depend on the shape alone, values on the seed; torch's global generator is not used."""
    if input_class != "public":
        raise ValueError(f"unknown input class {input_class!r} (known: public)")
    _, values = generators(seed, device)
    x = torch.randn(shape["rows"], shape["n"], generator=values, device=device)
    return spread(x, values), ranks(shape["k"], device)


def generators(seed: int, device: str) -> tuple[torch.Generator, torch.Generator]:
    """Two generators on `device`: for places, and for values."""
    # torch's CPU generator keeps only the low 32 bits of its seed, so seeds are hashed: every bit of `seed` counts.
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
    places, values = torch.Generator(device), torch.Generator(device)
    places.manual_seed(int.from_bytes(digest[:4], "little"))
    values.manual_seed(int.from_bytes(digest[4:], "little"))
    return places, values


def spread(x: Tensor, values: torch.Generator) -> Tensor:
    """`x` in place, with a mean and a scale of its own for every row."""
    # No bound that is known beforehand, or that was right for an earlier call, fits these rows.
    mean, scale = torch.randn(2, x.shape[0], 1, generator=values, device=x.device)
    return x.add_(mean).mul_(scale.exp())


def ranks(k: int, device: str) -> Tensor:
    """0 to k - 1 (int32). Operators take tensors alone: this one says by its length how many are wanted."""
    return torch.arange(k, dtype=torch.int32, device=device)


def reference(x: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    """The values (rows, k) in fp64, largest first, and one choice of their places (rows, k) int64."""
    found = x.topk(len(ranks), dim=-1)
    return found.values.double(), found.indices


def errors(outs: tuple[Tensor, ...], refs: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> dict[str, float]:
    """How many of the (rows, k) answers are wrong, by kind. -0 equals 0, and which of equal elements is named is free."""
    return {kind: float(wrong.sum()) for kind, wrong in faults(outs, refs, inputs).items()}


def worst(outs: tuple[Tensor, ...], refs: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> str:
    """The first wrong answer, in words."""
    (values, indices), wanted, x = outs, refs[0], inputs[0]
    for kind, wrong in faults(outs, refs, inputs).items():
        if wrong.any():
            row, rank = (int(i) for i in wrong.nonzero()[0])
            value, index = values[row, rank].item(), int(indices[row, rank])
            match kind:
                case "values":
                    return f"values[{row}, {rank}] is {value:.9g} and should be {wanted[row, rank].item():.9g}"
                case "gather":
                    return f"values[{row}, {rank}] is {value:.9g}, and x[{row}, {index}], named there, {x[row, index].item():.9g}"
                case "range":
                    return f"indices[{row}, {rank}] is {index}, and a row has {x.shape[1]} elements"
                case "repeats":
                    return f"indices[{row}] names {index} more than once"
    return "nothing is wrong"


def faults(outs: tuple[Tensor, ...], refs: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """(rows, k) bool for each kind of fault: True where an answer has it."""
    (values, indices), wanted, x = outs, refs[0], inputs[0]
    last = x.shape[1] - 1
    outside = (indices < 0) | (indices > last)
    order = indices.sort(dim=-1, stable=True)
    repeats = torch.zeros_like(outside)
    repeats.scatter_(-1, order.indices[:, 1:], order.values[:, 1:] == order.values[:, :-1])
    return {
        "values": values != wanted,
        "gather": ~outside & (x.gather(-1, indices.clamp(0, last)) != values),
        "range": outside,
        "repeats": repeats,
    }
