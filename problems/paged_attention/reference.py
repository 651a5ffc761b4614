"""Paged attention for decoding: how the inputs are drawn, and the exact answer in fp64."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import torch
from torch import Tensor

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
"""q (B, Hq, D) bf16, kv (pages, 2, page, Hkv, D) bf16, block_table (B, columns) int32, seq_lens (B) int32."""

HARD = 8
"""One query, and one head of keys, in so many is hard."""

EVEN = 0.6
"""The most that the calmest query of a group may be, as a factor: it gives every token weight, so that none of V is left out."""

LOUD = 32.0
"""A number of a key that changes q . k / sqrt(D) by some 3 times the query's temperature."""

PIECE, AT_ONCE = 1024, 2**26
"""Tokens of a sequence, and numbers of keys and values, that the reference decodes at a time: 512 MiB in fp64."""


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str = "public", device: str = "cpu") -> Inputs:
    """One input set. Sizes depend on the shape alone, values on the seed; torch's global generator is not used."""
    if input_class != "public":
        raise ValueError(f"unknown input class {input_class!r} (known: public)")
    places, values = generators(seed, device)
    lengths = draw_lengths(shape["B"], shape["mean_len"], shape["page"], places)
    return harden(*build(shape, lengths, shape["B"] * shape["mean_len"], places, values), values)


def generators(seed: int, device: str) -> tuple[torch.Generator, torch.Generator]:
    """Two generators on `device`: for lengths and page numbers, and for values."""
    # torch's CPU generator keeps only the low 32 bits of its seed, so seeds are hashed: every bit of `seed` counts.
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
    places, values = torch.Generator(device), torch.Generator(device)
    places.manual_seed(int.from_bytes(digest[:4], "little"))
    values.manual_seed(int.from_bytes(digest[4:], "little"))
    return places, values


def draw_lengths(B: int, mean_len: int, page: int, places: torch.Generator) -> Tensor:
    """B lengths (int64) that share B * mean_len tokens, shuffled. Up to three, at most half of them, are short: 1 token, a page,
    or one token more, by chance. The others have lognormal shares of the rest."""
    device = places.device
    kind = torch.randperm(3, generator=places, device=device)[: min(3, B // 2)]
    short = torch.where(kind > 0, page - 1 + kind, 1)  # 1, page or page + 1
    share = torch.randn(B - len(short), generator=places, dtype=torch.float64, device=device).exp_()
    rest = B * mean_len - short.sum()
    lengths = 1 + (share * ((rest - len(share)) / share.sum())).floor().long()
    lengths.index_add_(0, share.argmax()[None], (rest - lengths.sum())[None])
    return torch.cat([short, lengths])[torch.randperm(B, generator=places, device=device)]


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
    # On a CPU some versions of torch draw none beyond 3.5 in bf16.
    drawn = torch.bfloat16 if values.device.type == "cuda" else torch.float32
    kv = torch.randn(pool, 2, page, Hkv, D, dtype=drawn, device=device, generator=values).bfloat16()
    return q, kv, block_table, lengths.int()


def harden(q: Tensor, kv: Tensor, block_table: Tensor, seq_lens: Tensor, values: torch.Generator) -> Inputs:
    """The same inputs with cases as hard as the stress classes, so that no test tells those from timed inputs."""
    (B, Hq, D), Hkv, device = q.shape, kv.shape[3], q.device
    first = torch.randint(HARD, (2,), generator=values, device=device)
    length = q.norm(dim=-1, dtype=torch.float32)
    calm = shortest(length, Hkv)
    even = (EVEN * math.sqrt(D) / length).clamp_max(1)
    q = torch.where(calm[..., None], q * even[..., None], q)
    # k is N(0, 1), so q . k / sqrt(D) is N(0, |q|**2 / D): about +-1e3 at three sigma.
    large = ((torch.arange(B * Hq, device=device) + first[0]) % HARD == 0).view(B, Hq) & ~calm
    q = torch.where(large[..., None], torch.randn(q.shape, device=device, generator=values) * 333, q).bfloat16()
    alike = ((torch.arange(B * Hkv, device=device) + first[1]) % HARD == 0).view(B, Hkv)
    sequence, _ = owners(len(kv), block_table)
    of_page = torch.cat([alike, alike.new_zeros(1, Hkv)])[sequence]
    by_four = kv.view(torch.int64)  # four numbers at a time: this moves gigabytes
    keys = by_four[:, 0]
    torch.where(of_page[:, None, :, None], by_four[0, 0, 0].clone(), keys, out=keys)
    disturb(kv, alike, block_table, seq_lens, values)
    nan = torch.full((4,), torch.nan, dtype=kv.dtype).view(torch.int64).item()
    by_four.masked_fill_(unused_slots(kv, block_table, seq_lens)[:, None, :, None, None], nan)
    return q, kv, block_table, seq_lens


def shortest(length: Tensor, Hkv: int) -> Tensor:
    """(B, Hq) bool, by the lengths of queries: True for the shortest of those that share keys, if there are several."""
    (B, Hq), group = length.shape, length.shape[1] // Hkv
    least = length.view(B, Hkv, group).argmin(-1, keepdim=True)
    return ((torch.arange(group, device=length.device) == least) & (group > 1)).view(B, Hq)


def disturb(kv: Tensor, alike: Tensor, block_table: Tensor, seq_lens: Tensor, values: torch.Generator) -> None:
    """Make one number of one key LOUD in half of the pairs of sequence and head, by chance, whose keys are `alike`; in place.

    Else a look at a few keys would tell what the others are.
    """
    B, Hkv = alike.shape
    chosen, token, number = torch.rand(3, B, Hkv, generator=values, device=kv.device)
    token, number = (token * seq_lens[:, None]).long(), (number * kv.shape[4]).long()
    page = block_table.gather(1, token // kv.shape[2]).long()
    place = page, 0, token % kv.shape[2], torch.arange(Hkv, device=kv.device), number
    kv[place] = torch.where(alike & (chosen < 0.5), LOUD, kv[place].float()).to(kv.dtype)


def unused_slots(kv: Tensor, block_table: Tensor, seq_lens: Tensor) -> Tensor:
    """(pages, page) bool: True where a slot belongs to no sequence."""
    page = kv.shape[2]
    sequence, column = owners(len(kv), block_table)
    token = column[:, None] * page + torch.arange(page, device=kv.device)
    return token >= torch.cat([seq_lens.long(), seq_lens.new_zeros(1)])[sequence][:, None]


def owners(pages: int, block_table: Tensor) -> tuple[Tensor, Tensor]:
    """For every page (int64, (pages,)): the sequence that it belongs to, B where none, and its column in that one's row.

    Nothing here waits for the GPU, as a search for the used places of the table would: the judge draws thousands of sets.
    """
    B, columns = block_table.shape
    place = torch.full((pages + 1,), B * columns, device=block_table.device)
    entry = torch.where(block_table >= 0, block_table, pages).flatten().long()  # all that is unused shares a place of its own
    place.scatter_(0, entry, torch.arange(B * columns, device=block_table.device))
    return place[:pages] // columns, place[:pages] % columns


def reference(q: Tensor, kv: Tensor, block_table: Tensor, seq_lens: Tensor) -> Tensor:
    """The answer (B, Hq, D) in fp64. Nothing but the slots that belong to a sequence has a part in it.

    Every sequence is cut into pieces of a few pages, and many pieces are computed together: a GPU waits less. Of each piece come
    the largest of its scores, the sum of their exponentials beside that one, and the same sum of its values.
    """
    (B, Hq, D), (page, Hkv) = q.shape, kv.shape[2:4]
    device, columns = q.device, block_table.shape[1]
    pages = min(columns, max(1, PIECE // page))
    pieces = [(b, t) for b, length in enumerate(seq_lens.tolist()) for t in range(0, length, pages * page)]
    sequence, start = torch.tensor(pieces, device=device).unbind(1)
    heads = q.double().view(B, Hkv, Hq // Hkv, D) / math.sqrt(D)
    found = []
    for some in torch.arange(len(pieces), device=device).split(max(1, AT_ONCE // (2 * pages * page * Hkv * D))):
        b, t = sequence[some, None], start[some, None]
        column = (t // page + torch.arange(pages, device=device)).clamp_max(columns - 1)
        # (2, pieces, Hkv, pages, page, D). Beyond the end of a sequence stands what does not count.
        slots = kv[block_table[b, column].long().clamp_min(0)].permute(2, 0, 4, 1, 3, 5)
        k, v = slots.to(torch.float64, memory_format=torch.contiguous_format).flatten(3, 4)
        beyond = (t + torch.arange(pages * page, device=device) >= seq_lens[b])[:, None]
        scores = (heads[sequence[some]] @ k.mT).masked_fill_(beyond[:, :, None], -torch.inf)
        largest = scores.amax(-1, keepdim=True)
        weights = scores.sub_(largest).exp_()
        found.append((largest, weights.sum(-1, keepdim=True), weights @ v.masked_fill_(beyond[..., None], 0)))
    largest, total, values = (torch.cat(each) for each in zip(*found, strict=True))  # (pieces, Hkv, Hq / Hkv, 1 or D)
    of_piece = sequence.view(-1, 1, 1, 1).expand_as(largest)
    most = largest.new_full((B, *largest.shape[1:]), -torch.inf).scatter_reduce_(0, of_piece, largest, "amax")
    share = (largest - most[sequence]).exp_()
    total, values = (each.new_zeros(B, *each.shape[1:]).index_add_(0, sequence, each * share) for each in (total, values))
    return (values / total).view(B, Hq, D)
