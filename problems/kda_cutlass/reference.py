"""Kimi Delta Attention, forward: how the inputs are drawn, and the exact answer in fp64."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad, softplus

Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""q, k, v (B, T, H, D) bf16, g (B, T, H, D) fp32, beta (B, T, H) bf16, S0 (B, H, D, D) fp32."""


class Head(NamedTuple):
    """How one head's inputs are drawn."""

    least: float = 1e-3
    most: float = 1.0
    """Decay rates of its channels lie between these, log-uniform."""
    lean: float = 0.0
    spread: float = 1.0
    """beta is sigmoid(N(lean, spread**2))."""
    common: float = 0.0
    """Times one direction of the sequence, added to its keys before they are scaled to length 1."""
    empty: float = 0.0
    """1 where S0 is zero and queries lean towards their keys."""
    flawed: float = 0.0
    """Chance that one number is not as small as the others: of S0 where that is empty, else of g."""
    quiet: float = 0.0
    """1 where one head of all sequences may be the quiet one, whose betas are smaller."""


NO_DECAY = 1e-5
"""Lower rates are zero: channels that do not decay at all."""
LOUD = 8.0
"""The one number of S0 in a flawed head. Three of four are wrong without it (measured); in others it decays at once."""
QUIET = 0.02
"""The betas of the quiet head, as a part of what they would be."""
QUIET_FROM = 0.7
"""Every head that may be quiet draws a number from 0 to 1. The one with the largest is quiet, if that is above this."""
PUBLIC = (
    Head(),
    # Remembers for 32768 tokens: a state started late, from whatever else, is wrong. Keys have a direction in common: without
    # it no answer would need a chunk's inverse. With a spread of 1 a few tokens would write a hundred times as much as the
    # others. In the quiet head a state in bf16 loses decays that are smaller than its last place. It is one head only, since no
    # answer there needs what 1024 tokens write.
    Head(least=1e-6, most=1e-4, lean=-3.0, spread=0.5, common=2.0, flawed=0.5, quiet=1.0),
    # Over 64 tokens the largest sum of g is about -400: exp(-G) is infinite in fp32 from 89 on.
    Head(least=1e-2, most=8.0, lean=7.0, empty=1.0, flawed=0.5),
    # Products of two keys are about 0.5: the powers of their triangle grow to 1e7 before they vanish.
    Head(common=1.0),
)
"""Every set has heads as hard as the stress classes, so that no test tells those from timed inputs."""

LONG = 2048
"""From more tokens than this on, and on a GPU, the answer is by blocks of BLOCK tokens: fewer launches, equal to 1e-14."""
BLOCK = 32
AT_ONCE = 1 << 27
"""Numbers of the largest tensor: 1 GB in fp64."""


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str = "public", device: str = "cpu") -> Inputs:
    """One input set. Sizes depend on the shape alone, values on the seed; torch's global generator is not used."""
    if input_class != "public":
        raise ValueError(f"unknown input class {input_class!r} (known: public)")
    return build(shape, *generators(seed, device), PUBLIC)


def generators(seed: int, device: str) -> tuple[torch.Generator, torch.Generator]:
    """Two generators on `device`: for decays and beta, and for everything else."""
    # torch's CPU generator keeps only the low 32 bits of its seed, so seeds are hashed: every bit of `seed` counts.
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
    gates, values = torch.Generator(device), torch.Generator(device)
    gates.manual_seed(int.from_bytes(digest[:4], "little"))
    values.manual_seed(int.from_bytes(digest[4:], "little"))
    return gates, values


def build(shape: Mapping[str, int], gates: torch.Generator, values: torch.Generator, heads: Sequence[Head]) -> Inputs:
    """Inputs whose heads are of these kinds in turn, beginning with a random one."""
    B, T, H, D = (shape[name] for name in ("B", "T", "H", "D"))
    device = values.device

    def normal(*size: int, generator: torch.Generator = values) -> Tensor:
        return torch.randn(size, generator=generator, device=device)

    first = torch.randint(len(heads), (1,), generator=gates, device=device)
    kind = torch.tensor(heads, device=device)[(torch.arange(H, device=device) + first) % len(heads)]
    # (H, 1) each: they stand beside heads and channels.
    least, most, lean, spread, common, empty, flawed, quiet = kind.unsqueeze(-1).unbind(1)

    q, k = (normalize(normal(B, T, H, D), dim=-1) for _ in range(2))
    k = normalize(k + common * normalize(normal(B, 1, H, D), dim=-1), dim=-1)
    # Where the first state is empty, every query leans towards its own key: with q . k near 0 by chance the first outputs would
    # be all cancellation, and bf16 operands lose up to 0.4 of such a row (measured).
    q = normalize(q + empty * k, dim=-1)
    v = normal(B, T, H, D).bfloat16()
    S0 = (0.5 * (1 - empty))[..., None] * normal(B, H, D, D)
    rate = least * torch.rand(H, D, generator=gates, device=device).mul_((most / least).log()).exp_()
    rate = torch.where(rate < NO_DECAY, 0, rate)
    g = -rate * softplus(normal(B, T, H, D, generator=gates))
    drawn = torch.rand(B, 1, H, generator=gates, device=device) * quiet[:, 0]
    lean = lean[:, 0] + math.log(QUIET) * ((drawn == drawn.amax()) & (drawn > QUIET_FROM))
    beta = torch.sigmoid(lean + spread[:, 0] * normal(B, T, H, generator=gates)).bfloat16()
    disturb(g, S0, flawed[:, 0], empty[:, 0], gates)
    return q.bfloat16(), k.bfloat16(), v, g, beta, S0


def disturb(g: Tensor, S0: Tensor, flawed: Tensor, empty: Tensor, gates: torch.Generator) -> None:
    """Give heads, by chance, one number that a look at a few does not find, in place: one g of -1, or LOUD in S0."""
    (B, T, H, D), device = g.shape, g.device
    chosen, token, channel, column = torch.rand(4, B, H, generator=gates, device=device)
    sequence, head = torch.arange(B, device=device)[:, None], torch.arange(H, device=device)
    token, channel, column = ((share * size).long() for share, size in ((token, T), (channel, D), (column, D)))
    step, spot = (sequence, token, head, channel), (sequence, head, channel, column)
    g[step] = torch.where((chosen < flawed) & (empty == 0), -1.0, g[step])
    S0[spot] = torch.where((chosen < flawed) & (empty == 1), LOUD, S0[spot])


def reference(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, S0: Tensor) -> tuple[Tensor, Tensor]:
    """The outputs (B, T, H, D) and the last state (B, H, D, D) in fp64."""
    B, T, H, D = q.shape
    blocks = q.is_cuda or T > LONG
    step = BLOCK * max(1, AT_ONCE // (B * H * BLOCK * BLOCK * D)) if blocks else 1
    o = torch.empty(v.shape, dtype=torch.float64, device=v.device)
    S = S0.double()
    for t in range(0, T, step):
        # (B, H, tokens, D), and (B, H, tokens) for beta.
        tokens = (x[:, t : t + step].transpose(1, 2).double() for x in (q, k, v, g, beta))
        answer, S = several(S, *tokens) if blocks else one(S, *tokens)
        o[:, t : t + step] = answer.transpose(1, 2) * D**-0.5
    return o, S


def one(S: Tensor, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """One token, as the operator is written: q^T S with the state after it, and that state."""
    S = S * g.exp().transpose(-1, -2)
    u = v - k @ S
    S = S + (beta[..., None] * k).transpose(-1, -2) @ u
    return q @ S, S


def several(S: Tensor, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Blocks of tokens. In a block every u depends on those before it: a triangular system, solved for all of them at once.

    All but the state is computed for all blocks together. The last block is filled up with tokens that change nothing.
    """
    T = q.shape[2]
    q, k, v, g = (pad(x, (0, 0, 0, -T % BLOCK)).unflatten(2, (-1, BLOCK)) for x in (q, k, v, g))
    beta = pad(beta, (0, -T % BLOCK)).unflatten(2, (-1, BLOCK))
    G = g.cumsum(-2)
    # exp(G_i - G_j) of tokens j <= i is at most 1. Not exp(G_i) * exp(-G_j): the second overflows. So may those of j > i, which
    # `tril` leaves out.
    decayed = (G[..., :, None, :] - G[..., None, :, :]).exp_().mul_(k[..., None, :, :])
    products = decayed @ torch.stack([q, k], dim=-1)  # (..., i, j, 2)
    seen, known = products.mul_(beta[..., None, :, None]).unbind(-1)
    start = G.exp()
    # u = fresh - kept @ S
    solved = torch.linalg.solve_triangular(known.tril(-1), torch.cat([v, k * start], dim=-1), upper=False, unitriangular=True)
    fresh, kept = solved.split([v.shape[-1], k.shape[-1]], dim=-1)
    last = ((G[..., -1:, :] - G).exp() * k * beta[..., None]).transpose(-1, -2)
    # A block takes S to step @ S + added: one product for each block in turn, and all else for all of them at once.
    steps, added = torch.diag_embed(start[..., -1, :]) - last @ kept, last @ fresh
    states = [S.flatten(0, 1)]
    for block in zip(*(x.movedim(2, 0).flatten(1, 2) for x in (added, steps)), strict=True):
        states.append(torch.baddbmm(*block, states[-1]))
    before = torch.stack(states[:-1]).unflatten(1, S.shape[:2]).movedim(0, 2)
    o = (q * start) @ before + seen.tril() @ (fresh - kept @ before)
    return o.flatten(2, 3)[:, :, :T], states[-1].view(S.shape)
