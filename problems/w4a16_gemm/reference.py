"""4-bit weights times bf16 activations: how the inputs are drawn, and the exact answer in fp64."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
"""x (M, K) bf16, qw (N, K / 2) uint8, s (N, K / G) bf16, z (N, K / G) uint8."""

CODE_STD = 4.6
"""Standard deviation of a uniform code from 0 to 15: with scales around K**-0.5 / 4.6 a row of weights has a norm of about 1."""

SPREAD, LARGE = 1.0, 4.0
"""How the sizes of activations spread (sigma of their logarithm), and how much larger every 97th channel is. So the energy lies
in single values all over x: a few channels kept apart do not make 8 bits enough for the rest."""

WEIGHTS_AT_ONCE = 2**22
"""Weights that the reference decodes at a time: 32 MiB in fp64, where a GPU's shape as a whole would take up to 3.5 GiB."""


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str = "public", device: str = "cpu") -> Inputs:
    """One input set. Sizes depend on the shape alone, values on the seed; torch's global generator is not used."""
    if input_class != "public":
        raise ValueError(f"unknown input class {input_class!r} (known: public)")
    return build(shape, *generators(seed, device))


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
    # A uniform byte is two uniform codes.
    qw = torch.randint(0, 256, (N, K // 2), generator=codes, dtype=torch.uint8, device=device)
    s = torch.randn(N, K // G, generator=values, device=device).mul_(0.5).exp_().mul_(K**-0.5 / CODE_STD).bfloat16()
    z = torch.randn(N, K // G, generator=values, device=device).mul_(1.5).add_(8).round_().clamp_(0, 15).to(torch.uint8)
    first = torch.randint(0, min(97, K), (1,), generator=codes, device=device)
    large = (torch.arange(K, device=device) - first) % 97 == 0
    size = torch.randn(M, K, generator=values, device=device).mul_(SPREAD).sub_(SPREAD**2).exp_()
    x = torch.randn(M, K, generator=values, device=device).mul_(size).mul_(torch.where(large, LARGE, 1.0)).bfloat16()
    return x, qw, s, z


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
