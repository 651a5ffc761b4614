"""Mixture of experts: what no sandbox sees. Stress inputs, further shapes, and the arithmetic that the ceiling counts."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import torch
from torch import Tensor

from .reference import Inputs, build, choose, generators, grouped
from .reference import make_inputs as make_public_inputs

CEILING_DTYPE = "bf16"

EXTRA_SHAPES: dict[str, tuple[dict[str, int], ...]] = {
    "cpu": (
        {"T": 100, "K": 8, "R": 800, "H": 64, "I": 32, "E": 16, "E_act": 9, "zipf_pct": 60},
        {"T": 131, "K": 1, "R": 131, "H": 96, "I": 17, "E": 3, "E_act": 2, "zipf_pct": 0},
        {"T": 1, "K": 6, "R": 6, "H": 160, "I": 48, "E": 20, "E_act": 6, "zipf_pct": 50},
    ),
    "gpu": (
        {"T": 100, "K": 8, "R": 800, "H": 64, "I": 32, "E": 16, "E_act": 9, "zipf_pct": 60},
        {"T": 1000, "K": 6, "R": 6000, "H": 1440, "I": 720, "E": 60, "E_act": 51, "zipf_pct": 80},
        {"T": 8191, "K": 1, "R": 8191, "H": 1024, "I": 1000, "E": 5, "E_act": 5, "zipf_pct": 0},
        {"T": 1, "K": 8, "R": 8, "H": 4096, "I": 1536, "E": 64, "E_act": 8, "zipf_pct": 100},
    ),
}
"""Checked for correctness only: one token, one expert per token, numbers of experts and sizes that no tile divides."""

INPUT_CLASSES: tuple[str, ...] = (
    "one_set",
    "ends_only",
    "single_rows",
    "tile_edges",
    "any_order",
    "nan_unused",
    "large_gates",
)

COUNTS = {"single_rows": (1,), "tile_edges": (1, 127, 128, 129)}
"""Rows of one expert after the other, over and over; one expert gets what is left."""


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str, device: str = "cpu") -> Inputs:
    """One stress set. Sizes depend on the shape and the input class alone. Class `public` is the public distribution."""
    if input_class == "public":
        return make_public_inputs(shape, seed, device=device)
    if input_class not in INPUT_CLASSES:
        raise ValueError(f"unknown input class {input_class!r} (known: public, {', '.join(INPUT_CLASSES)})")
    places, values = generators(seed, device)
    tok, off = rows(shape, input_class, places)
    x, tok, off, W = build(shape, tok, off, values)
    match input_class:
        case "nan_unused":
            # Every odd token's rows go to the even one before it, which so comes twice to some experts.
            tok.bitwise_and_(-2)
            x[1::2] = torch.nan
            W.masked_fill_((off[1:] == off[:-1])[:, None, None], torch.nan)
        case "large_gates":
            # Gates are about N(0, 1): now about +-1e3 at four sigma, exactly, since 256 is a power of two.
            W[:, : shape["I"]].mul_(256)
    return x, tok, off, W


def rows(shape: Mapping[str, int], input_class: str, places: torch.Generator) -> tuple[Tensor, Tensor]:
    """tok and off of an input class."""
    T, K, R, E = (shape[name] for name in ("T", "K", "R", "E"))
    device = places.device
    if input_class == "one_set":
        return grouped(torch.randperm(E, generator=places, device=device)[:K].repeat(T, 1), E)
    if input_class == "ends_only" or input_class in COUNTS:
        tok = torch.randint(T, (R,), generator=places, dtype=torch.int32, device=device)
        off = torch.zeros(E + 1, dtype=torch.int32, device=device)
        if input_class == "ends_only":
            off[1:E] = torch.randint(1, R, (1,), generator=places, dtype=torch.int32, device=device)
            off[E] = R
        else:
            counts = torch.tensor(shared(R, E, COUNTS[input_class]), device=device)
            off[1:] = counts[torch.randperm(E, generator=places, device=device)].cumsum(0)
        return tok, off
    active = max(K, shape["E_act"] // 2) if input_class == "nan_unused" else shape["E_act"]
    tok, off = grouped(choose(shape, active, places), E)
    if input_class == "any_order":
        row = torch.arange(R, dtype=torch.int32, device=device)
        expert = torch.searchsorted(off[1:].contiguous(), row, right=True)
        tok = tok[(expert + torch.rand(R, generator=places, dtype=torch.float64, device=device)).argsort()]
    return tok, off


def shared(R: int, E: int, counts: tuple[int, ...]) -> list[int]:
    """R rows shared out over E experts: `counts` over and over while there are rows, and to the last one what is left."""
    given: list[int] = []
    for _, count in zip(range(E - 1), cycle(counts), strict=False):
        given.append(min(count, R - sum(given)))
    return [*given, R - sum(given)]
