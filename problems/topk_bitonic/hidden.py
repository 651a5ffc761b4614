"""The k largest of every row: what no sandbox sees. Stress inputs, further shapes, and the arithmetic of the ceiling."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .reference import Inputs, generators, ranks, spread
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

INPUT_CLASSES: tuple[str, ...] = (
    "cluster",
    "block",
    "stride",
    "ascending",
    "descending",
    "denormal",
    "ties",
    "constant",
    "few_finite",
    "signed_zeros",
    "infinities",
    "negative",
    "wide",
)

LIFT = 20.0
"""Added to normal numbers to make winners of them: far more than the largest of 2**27 others (5.7)."""
FINITE = 7
"""Finite elements of a row at most, where the others are -inf."""
EXPONENT = 0x7F800000


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str, device: str = "cpu") -> Inputs:
    """One stress set. Sizes depend on the shape alone. Class `public` is the public distribution."""
    if input_class == "public":
        return make_public_inputs(shape, seed, device=device)
    if input_class not in INPUT_CLASSES:
        raise ValueError(f"unknown input class {input_class!r} (known: public, {', '.join(INPUT_CLASSES)})")
    places, values = generators(seed, device)
    z = torch.randn(shape["rows"], shape["n"], generator=values, device=device)
    return draw(input_class, z, shape["k"], places, values), ranks(shape["k"], device)


def draw(input_class: str, z: Tensor, k: int, places: torch.Generator, values: torch.Generator) -> Tensor:
    """A matrix of that class from standard normal numbers `z`, which are used up."""
    match input_class:
        case "cluster" | "denormal" | "wide":
            return of_bits(input_class, z, values)
        case "block":
            return spread(z.add_(block(z, k, places), alpha=LIFT), values)
        case "stride":
            return spread(z.add_(stride(z, k, places), alpha=LIFT), values)
        case "ascending" | "descending":
            return spread(z.sort(dim=-1, descending=input_class == "descending").values, values)
        case "ties":
            levels = torch.randint(0, 64, z.shape, generator=values, device=z.device, dtype=torch.int32)
            return levels.add_(torch.randint(-64, 64, (len(z), 1), generator=values, device=z.device, dtype=torch.int32)).float()
        case "constant":
            return spread(z[:, :1].clone(), values).expand(z.shape).contiguous()
        case "few_finite":
            # Of the first of several rows nothing is finite at all.
            place = random_places(z, FINITE, places)
            x = torch.full_like(z, -torch.inf).scatter_(1, place, z.gather(1, place))
            return x.index_fill_(0, torch.arange(min(1, len(z) - 1), device=z.device), -torch.inf)
        case "signed_zeros":
            # Fewer positive elements than are wanted: the last of the winners are zeros, of either sign.
            place = random_places(z, k // 2, places)
            below = torch.where(z > -0.25, z.sign() * 0.0, z)
            return below.scatter_(1, place, z.gather(1, place).abs_())
        case "infinities":
            # Up to twice as many as are wanted, on an average: where there are fewer, ordinary elements follow.
            share = torch.rand(len(z), 1, generator=places, device=z.device).mul_(2 * k / z.shape[1])
            chance = torch.rand(z.shape, generator=places, device=z.device)
            return spread(z, values).masked_fill_(chance > 0.9, -torch.inf).masked_fill_(chance < share, torch.inf)
        case "negative":
            return spread(z, values).abs_().add_(torch.finfo(z.dtype).tiny).neg_()
    raise AssertionError(input_class)


def of_bits(input_class: str, z: Tensor, values: torch.Generator) -> Tensor:
    """Elements that are drawn as bit patterns."""
    negative = torch.signbit(z).int() << 31
    match input_class:
        case "cluster":
            # One number for each row, and at random one of the 4096 from there on: they differ in the last 12 bits or so.
            first = z[:, :1].mul(torch.randn(len(z), 1, generator=values, device=z.device).mul_(5).exp_()).contiguous()
            steps = torch.randint(0, 4096, z.shape, generator=values, device=z.device, dtype=torch.int32)
            return steps.add_(first.view(torch.int32)).view(torch.float32)
        case "denormal":
            # Whole multiples of the smallest positive number, 2**13 of them to a standard deviation.
            return z.mul_(2**13).round_().abs_().int().bitwise_or_(negative).view(torch.float32)
        case "wide":
            # Every finite number is as likely as every other: half of them are beyond 1 in magnitude, up to 3.4e38.
            bits = torch.randint(0, 2**31 - 1, z.shape, generator=values, device=z.device, dtype=torch.int32)
            bits = torch.where((bits & EXPONENT) == EXPONENT, bits ^ (1 << 30), bits)
            return bits.bitwise_or_(negative).view(torch.float32)
    raise AssertionError(input_class)


def block(z: Tensor, k: int, places: torch.Generator) -> Tensor:
    """True for a run of neighbours in every row, the winners among them: at the row's start, its end, or anywhere."""
    rows, n = z.shape
    length = max(k, n // 64)
    # Two thirds of the rows have the run at an end.
    start = torch.rand(rows, 1, generator=places, device=z.device).mul_(3).sub_(1).mul_(n - length).round_().long()
    start.clamp_(0, n - length)
    column = torch.arange(n, device=z.device)
    return (column >= start) & (column < start + length)


def stride(z: Tensor, k: int, places: torch.Generator) -> Tensor:
    """True for every s-th element of a row, with an s and a first one of its own: in half of the rows s is a power of two."""
    rows, n = z.shape
    most = n // k
    powers = most.bit_length() - 1
    roll = torch.rand(3, rows, 1, generator=places, device=z.device, dtype=torch.float64)
    least = min(4, powers)
    power = 2 ** (least + (roll[0] * (powers - least + 1)).long())
    step = torch.where(roll[1] < 0.5, power, 1 + (roll[0] * most).long())
    offset = (roll[2] * step).long()
    return (torch.arange(n, device=z.device) - offset) % step == 0


def random_places(z: Tensor, count: int, places: torch.Generator) -> Tensor:
    """`count` places in each row (int64), some of which may be the same."""
    return torch.randint(0, z.shape[1], (len(z), count), generator=places, device=z.device)
