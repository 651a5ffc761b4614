"""Paged attention for decoding: how the inputs are drawn, and the exact answer in fp64."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import torch
from torch import Tensor

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
"""q (B, Hq, D) bf16, kv (pages, 2, page, Hkv, D) bf16, block_table (B, columns) int32, seq_lens (B) int32."""


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str = "public", device: str = "cpu") -> Inputs:
    """One input set. Sizes depend on the shape alone, values on the seed; torch's global generator is not used."""
    if input_class != "public":
        raise ValueError(f"unknown input class {input_class!r} (known: public)")
    places, values = generators(seed, device)
    return build(shape, draw_lengths(shape["B"], shape["mean_len"], places), shape["B"] * shape["mean_len"], places, values)


def generators(seed: int, device: str) -> tuple[torch.Generator, torch.Generator]:
    """Two generators on `device`: for lengths and page numbers, and for values."""
    # torch's CPU generator keeps only the low 32 bits of its seed, so seeds are hashed: every bit of `seed` counts.
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
    places, values = torch.Generator(device), torch.Generator(device)
    places.manual_seed(int.from_bytes(digest[:4], "little"))
    values.manual_seed(int.from_bytes(digest[4:], "little"))
    return places, values


def draw_lengths(B: int, mean_len: int, places: torch.Generator) -> Tensor:
    """B lengths (int64): lognormal shares of exactly B * mean_len tokens, shuffled; of several at least one is 1."""
    share = torch.randn(B, generator=places, dtype=torch.float64, device=places.device).exp_()
    if B > 1:
        share[:1].zero_()
    lengths = 1 + (share * (B * (mean_len - 1) / share.sum())).floor().long()
    lengths.index_add_(0, share.argmax()[None], (B * mean_len - lengths.sum())[None])
    return lengths[torch.randperm(B, generator=places, device=places.device)]


def build(
    shape: Mapping[str, int], lengths: Tensor, most_tokens: int, places: torch.Generator, values: torch.Generator
) -> Inputs:
    """Inputs for these lengths. `most_tokens` bounds their sum and fixes the size of the pool and of the table."""
    B, Hq, Hkv, D, page = (shape[name] for name in ("B", "Hq", "Hkv", "D", "page"))
    device = values.device
    columns = -(-(most_tokens - B + 1) // page)
    most_pages = (most_tokens + B * (page - 1)) // page
    pool = most_pages + most_pages // 10 + 1

    used = (lengths + page - 1) // page
    column = torch.arange(columns, device=device)
    order = torch.randperm(pool, generator=places, dtype=torch.int32, device=device)
    place = ((used.cumsum(0) - used)[:, None] + column).clamp_(max=pool - 1)
    block_table = torch.where(column < used[:, None], order[place], -1)

    # A temperature per head from 0.5 to 4: some heads attend evenly, some to a few tokens.
    temperature = torch.rand(B, Hq, 1, device=device, generator=values).mul_(math.log(8)).add_(math.log(0.5)).exp_()
    q = torch.randn(B, Hq, D, device=device, generator=values).mul_(temperature).bfloat16()
    kv = torch.randn(pool, 2, page, Hkv, D, device=device, generator=values).bfloat16()
    return q, kv, block_table, lengths.int()


def reference(q: Tensor, kv: Tensor, block_table: Tensor, seq_lens: Tensor) -> Tensor:
    """The answer (B, Hq, D) in fp64. Reads only the slots that belong to a sequence."""
    B, Hq, D = q.shape
    page, Hkv = kv.shape[2:4]
    out = torch.empty(B, Hq, D, dtype=torch.float64, device=q.device)
    for b, length in enumerate(seq_lens.tolist()):
        pages = block_table[b, : -(-length // page)].long()
        k, v = kv[pages].transpose(0, 1).reshape(2, -1, Hkv, D)[:, :length].double()
        scores = q[b].double().view(Hkv, Hq // Hkv, D) @ k.permute(1, 2, 0) / math.sqrt(D)
        out[b] = (scores.softmax(-1) @ v.transpose(0, 1)).view(Hq, D)
    return out
