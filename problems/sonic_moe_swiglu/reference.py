"""Mixture of experts, up-projection with SwiGLU: how the inputs are drawn, and the exact answer in fp64."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
"""x (T, H) bf16, tok (R) int32, off (E + 1) int32, W (E, 2 I, H) bf16."""

HARD = 8
"""One expert in so many is hard."""


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str = "public", device: str = "cpu") -> Inputs:
    """One input set. Sizes depend on the shape alone, values on the seed; torch's global generator is not used."""
    if input_class != "public":
        raise ValueError(f"unknown input class {input_class!r} (known: public)")
    places, values = generators(seed, device)
    tok, off = grouped(choose(shape, shape["E_act"], places), shape["E"])
    x, tok, off, W = build(shape, tok, off, values)
    return harden(x, tok, off, W, places)


def generators(seed: int, device: str) -> tuple[torch.Generator, torch.Generator]:
    """Two generators on `device`: for the choice of experts, and for values."""
    # torch's CPU generator keeps only the low 32 bits of its seed, so seeds are hashed: every bit of `seed` counts.
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
    places, values = torch.Generator(device), torch.Generator(device)
    places.manual_seed(int.from_bytes(digest[:4], "little"))
    values.manual_seed(int.from_bytes(digest[4:], "little"))
    return places, values


def choose(shape: Mapping[str, int], active: int, places: torch.Generator) -> Tensor:
    """(T, K) int64: K distinct experts for each token among `active` random ones, by Zipf's law; each of these is chosen."""
    T, K, E = shape["T"], shape["K"], shape["E"]
    device = places.device
    column = torch.arange(active, device=device)
    # The largest K of log weight plus Gumbel noise are K draws without replacement.
    noise = torch.rand(T, active, generator=places, dtype=torch.float64, device=device).log_().neg_().log_()
    score = (column + 1).double().log_().mul_(-shape["zipf_pct"] / 100) - noise
    # Every expert is dealt one token to begin with: how many have rows, and so the work, is then the shape's.
    dealt = torch.randperm(T, generator=places, device=device)[column % T]
    score.scatter_(0, dealt[None], torch.inf)
    return torch.randperm(E, generator=places, device=device)[score.topk(K, dim=1).indices]


def grouped(experts: Tensor, E: int) -> tuple[Tensor, Tensor]:
    """tok and off for the experts (T, K) of each token: grouped by expert, and in a group by token."""
    in_order, order = experts.flatten().sort(stable=True)
    off = torch.searchsorted(in_order, torch.arange(E + 1, device=experts.device))
    return (order // experts.shape[1]).int(), off.int()


def build(shape: Mapping[str, int], tok: Tensor, off: Tensor, values: torch.Generator) -> Inputs:
    """Inputs for these rows."""
    T, H, I, E = (shape[name] for name in ("T", "H", "I", "E"))  # noqa: E741  the operator's own letter
    x = torch.randn(T, H, device=values.device, generator=values)
    outliers = x[:, ::101]
    outliers.mul_(10)
    # Their variance is 100 and that of the others 1: back to 1 on average.
    x.mul_(math.sqrt(H / (H + 99 * outliers.shape[1])))
    # On a CPU some versions of torch draw none beyond 3.5 sigma in bf16.
    drawn = torch.bfloat16 if values.device.type == "cuda" else torch.float32
    W = torch.empty(E, 2 * I, H, dtype=drawn, device=values.device).normal_(std=H**-0.5, generator=values)
    return x.bfloat16(), tok, off, W.bfloat16()


def harden(x: Tensor, tok: Tensor, off: Tensor, W: Tensor, places: torch.Generator) -> Inputs:
    """The same inputs with cases as hard as the stress classes, so that no test tells those from timed inputs."""
    device, E, I = x.device, len(W), W.shape[1] // 2  # noqa: E741
    first = torch.randint(32, (2,), generator=places, device=device)
    # Of some odd tokens the rows go to the even one before, which so may come twice to an expert.
    token = torch.arange(len(x), device=device)
    gone = token % 64 == 2 * first[0] + 1
    tok = torch.where(gone[tok.long()], tok - 1, tok)
    x.masked_fill_(gone[:, None], torch.nan)
    # Every eighth expert has its rows in any order, and gates 256 times as large, up to 1000 or so. What they let through is as
    # much smaller, exactly, since 256 is a power of two: else these experts' rows would be all that counts.
    chosen = (torch.arange(E, device=device) + first[1]) % HARD == 0
    gate = torch.where(chosen, 256.0, 1.0)
    factors = torch.stack([gate, 1 / gate], dim=1).masked_fill_((off[1:] == off[:-1])[:, None], torch.nan)
    W.unflatten(1, (2, I)).mul_(factors[..., None, None].to(W.dtype))
    row = torch.arange(len(tok), device=device)
    expert = torch.searchsorted(off[1:].contiguous(), row.int(), right=True)
    mixed = torch.rand(len(tok), generator=places, dtype=torch.float64, device=device)
    place = torch.where(chosen[expert], mixed, row / len(tok))
    return x, tok[(expert + place).argsort()], off, W


def reference(x: Tensor, tok: Tensor, off: Tensor, W: Tensor) -> Tensor:
    """The answer (R, I) in fp64. Reads only the tokens that a row names and the experts that have rows."""
    rows = x[tok.long()]
    both = torch.empty(len(tok), W.shape[1], dtype=torch.float64, device=x.device)
    for e, (begin, end) in enumerate(pairwise(off.tolist())):
        if begin < end:
            torch.mm(rows[begin:end].double(), W[e].double().T, out=both[begin:end])
    gate, up = both.chunk(2, dim=1)
    return gate.sigmoid().mul_(gate).mul_(up)
