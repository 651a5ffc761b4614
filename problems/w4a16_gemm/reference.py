"""4-bit weights times bf16 activations: how the inputs are drawn, and the exact answer in fp64."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
"""x (M, K) bf16, qw (N, K / 2) uint8, s (N, K / G) bf16, z (N, K / G) uint8."""

OF_WEIGHTS = ("uniform_zeros", "extreme_zeros", "wide_scales", "all_fifteen", "zero_scales")
OF_ACTIVATIONS = ("one_hot", "scattered", "all_fifteen")
"""Stress classes of rows of weights and of rows of x."""
LOUDER = {"scattered": 3.2, "all_fifteen": 4.0}
"""How much larger than other rows of y those of these classes would be."""
HARD = 8
"""One row in so many is as hard as the stress classes: no test tells these from timed inputs."""

CODE_STD = 4.6
"""Standard deviation of a uniform code from 0 to 15: with scales around K**-0.5 / 4.6 a row of weights has a norm of about 1."""

SPREAD, LARGE = 1.0, 4.0
"""How the sizes of activations spread (sigma of their logarithm), and how much larger every 97th channel is. So the energy lies
in single values all over x: a few channels kept apart do not make 8 bits enough for the rest."""

STILL_FIFTEEN = 1 / 16
"""Share of `all_fifteen` rows of weights whose codes are all 15 in timed sets, half of them but for one group."""

WIDE = 30.0
"""By how much scales of one row differ at most in `wide_scales`. With more, the smallest groups would hardly count."""

BESIDE = 0.25
"""Size of all other activations together beside the one of `one_hot`."""

WEIGHTS_AT_ONCE = 2**24
"""Weights that the reference decodes at a time: 128 MiB in fp64, and a few times that in all. A GPU's shape as a whole would take
up to 3.5 GiB."""


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str = "public", device: str = "cpu") -> Inputs:
    """One input set. Sizes depend on the shape alone, values on the seed; torch's global generator is not used."""
    if input_class != "public":
        raise ValueError(f"unknown input class {input_class!r} (known: public)")
    codes, values = generators(seed, device)
    of_activations, of_weights = hard(shape["M"], OF_ACTIVATIONS, codes), hard(shape["N"], OF_WEIGHTS, values)
    x, qw, s, z = build(shape, codes, values)
    for name, rows in of_activations.items():
        hardened = stress_activations(name, x[rows], codes, values)
        # Of the size of the other rows: else these would be most of what counts.
        x[rows] = hardened / LOUDER.get(name, 1)
    for name, rows in of_weights.items():
        packed, scales, z[rows] = stress_weights(name, qw[rows], s[rows], z[rows], codes, values)
        if name == "all_fifteen":
            # Most stay as they were: of those that are nearly alike much may be left out.
            still = torch.rand(len(packed), 1, generator=codes, device=x.device) < STILL_FIFTEEN
            packed = torch.where(still, packed, qw[rows])
            # Sums over codes of 15 are up to K**0.5 times as large as others where x has one sign.
            scales = torch.where(still, scales / 8, scales)
            disturb(packed, shape["G"] // 2, codes)
        qw[rows], s[rows] = packed, scales
    return x, qw, s, z


def disturb(qw: Tensor, size: int, codes: torch.Generator) -> None:
    """Give half of the rows, by chance, one group of `size` bytes of any codes, in place: a look at a few would else tell all."""
    N, device = len(qw), qw.device
    group = torch.randint(0, qw.shape[1] // size, (N, 1), generator=codes, device=device)
    place = group * size + torch.arange(size, device=device)
    drawn = torch.randint(0, 256, (N, size), generator=codes, dtype=torch.uint8, device=device)
    chosen = torch.rand(N, 1, generator=codes, device=device) < 0.5
    qw.scatter_(1, place, torch.where(chosen, drawn, qw.gather(1, place)))


def generators(seed: int, device: str) -> tuple[torch.Generator, torch.Generator]:
    """Two generators on `device`: for codes, zero points and places, and for values."""
    # torch's CPU generator keeps only the low 32 bits of its seed, so seeds are hashed: every bit of `seed` counts.
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
    codes, values = torch.Generator(device), torch.Generator(device)
    codes.manual_seed(int.from_bytes(digest[:4], "little"))
    values.manual_seed(int.from_bytes(digest[4:], "little"))
    return codes, values


def build(shape: Mapping[str, int], codes: torch.Generator, values: torch.Generator) -> Inputs:
    """Inputs of the public distribution."""
    M, N, K, G = (shape[name] for name in ("M", "N", "K", "G"))
    device = values.device
    # A uniform byte is two uniform codes, and eight of them are drawn as one number: K is a multiple of 16.
    qw = torch.randint(-(2**63), 2**63 - 1, (N, K // 16), generator=codes, device=device).view(torch.uint8)
    s = torch.randn(N, K // G, generator=values, device=device).mul_(0.5).exp_().mul_(K**-0.5 / CODE_STD).bfloat16()
    z = torch.randn(N, K // G, generator=values, device=device).mul_(1.5).add_(8).round_().clamp_(0, 15).to(torch.uint8)
    first = torch.randint(0, min(97, K), (1,), generator=codes, device=device)
    large = (torch.arange(K, device=device) - first) % 97 == 0
    size = torch.randn(M, K, generator=values, device=device).mul_(SPREAD).sub_(SPREAD**2).exp_()
    x = torch.randn(M, K, generator=values, device=device).mul_(size).mul_(torch.where(large, LARGE, 1.0)).bfloat16()
    return x, qw, s, z


def hard(rows: int, classes: Sequence[str], places: torch.Generator) -> dict[str, slice]:
    """The rows of each class: every eighth is hard, beginning with a random one, and those take the classes in turn."""
    first = places.initial_seed() % (HARD * len(classes))  # not a number drawn on the GPU, for which the judge would wait
    at = range(first % HARD, rows, HARD)
    turns = {name: at[(number - first // HARD) % len(classes) :: len(classes)] for number, name in enumerate(classes)}
    return {name: slice(each.start, each.stop, each.step) for name, each in turns.items() if each}


def stress_activations(input_class: str, x: Tensor, codes: torch.Generator, values: torch.Generator) -> Tensor:
    """Rows of x as a stress class has them."""
    M, K = x.shape
    match input_class:
        case "one_hot":
            # One in eight is nothing else, by chance. Were all, to look for them would be worth it.
            channel = torch.randint(0, K, (M, 1), generator=codes, device=x.device)
            beside = torch.where(torch.rand(M, 1, generator=codes, device=x.device) < 1 / 8, 0.0, BESIDE * K**-0.5)
            return (torch.randn(M, K, generator=values, device=x.device) * beside).scatter_(1, channel, 1.0).bfloat16()
        case "scattered":
            # As many large values as in public inputs, but in no channel more than in others.
            large = torch.rand(M, K, generator=codes, device=x.device) < 1 / 97
            return (torch.randn(M, K, generator=values, device=x.device) * torch.where(large, 30.0, 1.0)).bfloat16()
    # With codes of 15 all weights have one sign, and so has x: a sum that cancels would ask more than the tolerance means.
    return x.abs()


def stress_weights(
    input_class: str, qw: Tensor, s: Tensor, z: Tensor, codes: torch.Generator, values: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of weights as a stress class has them."""
    device = s.device
    match input_class:
        case "uniform_zeros":
            z = torch.randint(0, 16, z.shape, generator=codes, dtype=torch.uint8, device=device)
        case "extreme_zeros":
            z = 15 * torch.randint(0, 2, z.shape, generator=codes, dtype=torch.uint8, device=device)
        case "wide_scales":
            factor = torch.rand(s.shape, generator=values, device=device).mul_(math.log(WIDE)).exp_()
            wide = s.float() * factor
            # A row keeps its size: else the columns of y of a few rows, or even of one group, would be all that counts.
            s = (wide * (s.float().pow(2).mean(1, keepdim=True) / wide.pow(2).mean(1, keepdim=True)).sqrt()).bfloat16()
        case "all_fifteen":
            qw = torch.full_like(qw, 0xFF)
        case "zero_scales":
            # A random group of every row, and of every 32nd row all groups: those outputs are exactly zero.
            group = torch.randint(0, s.shape[1], (len(s), 1), generator=codes, device=device)
            s = s.scatter(1, group, 0.0)
            s[::32] = 0
    return qw, s, z


def reference(x: Tensor, qw: Tensor, s: Tensor, z: Tensor) -> Tensor:
    """The answer (M, N) in fp64."""
    M, K = x.shape
    N, groups = s.shape
    y = torch.empty(M, N, dtype=torch.float64, device=x.device)
    rows = max(1, WEIGHTS_AT_ONCE // K)
    for n in range(0, N, rows):
        packed = qw[n : n + rows]
        q = torch.stack([packed & 15, packed >> 4], dim=-1).view(-1, groups, K // groups)
        w = (q.double() - z[n : n + rows, :, None].double()) * s[n : n + rows, :, None].double()
        y[:, n : n + rows] = x.double() @ w.view(-1, K).T
    return y
