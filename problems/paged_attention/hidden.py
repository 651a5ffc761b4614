"""Paged attention: what no sandbox sees. Stress inputs, further shapes, and the arithmetic that the ceiling counts."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .reference import Inputs, build, draw_lengths, generators, unused_slots
from .reference import make_inputs as make_public_inputs

CEILING_DTYPE = "bf16"

EXTRA_SHAPES: dict[str, tuple[dict[str, int], ...]] = {
    "cpu": (
        {"B": 3, "Hq": 4, "Hkv": 2, "D": 32, "mean_len": 37, "page": 8},
        {"B": 1, "Hq": 12, "Hkv": 1, "D": 64, "mean_len": 211, "page": 16},
        {"B": 7, "Hq": 5, "Hkv": 5, "D": 128, "mean_len": 19, "page": 32},
    ),
    "gpu": (
        {"B": 3, "Hq": 4, "Hkv": 2, "D": 32, "mean_len": 37, "page": 8},
        {"B": 5, "Hq": 48, "Hkv": 8, "D": 128, "mean_len": 777, "page": 16},
        {"B": 33, "Hq": 16, "Hkv": 2, "D": 64, "mean_len": 1999, "page": 32},
        {"B": 1, "Hq": 32, "Hkv": 8, "D": 128, "mean_len": 20011, "page": 16},
    ),
}
"""Checked for correctness only: the GQA ratios, odd batch sizes and lengths here are in no public shape."""

INPUT_CLASSES: tuple[str, ...] = (
    "length_one",
    "full_page",
    "page_plus_one",
    "one_long",
    "large_scores",
    "nan_unused",
    "identical_keys",
    "padding",
)

LONGEST = 131_071
"""Tokens of the one long sequence, where the shape is large enough (2**17 - 1: no page size divides it)."""


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str, device: str = "cpu") -> Inputs:
    """One stress set. Sizes depend on the shape and the input class alone. Class `public` is the public distribution."""
    if input_class == "public":
        return make_public_inputs(shape, seed, device=device)
    if input_class not in INPUT_CLASSES:
        raise ValueError(f"unknown input class {input_class!r} (known: public, {', '.join(INPUT_CLASSES)})")
    B, page, mean_len = (shape[name] for name in ("B", "page", "mean_len"))
    places, values = generators(seed, device)
    equal = {"length_one": 1, "full_page": page, "page_plus_one": page + 1}
    if input_class in equal:
        return build(shape, torch.full((B,), equal[input_class], device=device), B * equal[input_class], places, values)
    if input_class == "one_long":
        lengths = torch.ones(B, dtype=torch.int64, device=device)
        longest = min(LONGEST, 4 * B * mean_len + page - 1)
        lengths[torch.randint(B, (1,), generator=places, device=device)] = longest
        return build(shape, lengths, longest + B - 1, places, values)

    q, kv, block_table, seq_lens = build(shape, draw_lengths(B, mean_len, page, places), B * mean_len, places, values)
    match input_class:
        case "large_scores":
            # k is N(0, 1), so a score is N(0, |q|**2 / D): about +-1e3 at three sigma.
            q = (torch.randn(q.shape, device=device, generator=values) * 333).bfloat16()
        case "nan_unused":
            kv.masked_fill_(unused_slots(kv, block_table, seq_lens)[:, None, :, None, None], torch.nan)
        case "identical_keys":
            kv[:, 0] = kv[0, 0, 0].clone()
        case "padding":
            # Index -1 means the last page to torch: make sure that it holds NaN and belongs to no sequence.
            block_table = torch.cat([block_table, torch.full_like(block_table, -1).repeat(1, 3)], dim=1)
            kv = torch.cat([kv, torch.full_like(kv[:1], torch.nan)])
    return q, kv, block_table, seq_lens
