"""Softmax whose rows sum to 1 far beyond fp32: how the inputs are drawn, the exact answer in fp64, and what is measured."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Inputs = tuple[Tensor]
"""x (R, V) fp32."""

STRESS = (
    "near_constant",
    "descending",
    "ascending",
    "one_big",
    "sigma4",
    "large_logits",
    "minus_inf",
    "all_equal",
    "max_duplicated",
)
"""Classes of rows."""
HARD = 8
"""One row in so many is as hard as the stress classes: no test tells these from timed inputs."""

U = 2.0**-24
"""Half of what fp32 numbers just above 1 lie apart."""
TINY = 1e-300
"""Keeps 0 / 0 away: no error then gives 0, any error a huge number."""
LN_2 = 0.6931471805599453
"""Added to one of the equal logits of a flawed row, which doubles its weight: with another at -inf the sum is as before."""
SMALLEST = 1.2e-38
"""Numbers below fp32's smallest normal one, 1.18e-38, may come out as 0."""


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str = "public", device: str = "cpu") -> Inputs:
    """One input set. Sizes depend on the shape alone, values on the seed; torch's global generator is not used."""
    if input_class != "public":
        raise ValueError(f"unknown input class {input_class!r} (known: public)")
    places, values = generators(seed, device)
    R, V = shape["R"], shape["V"]
    classes = hard(R, STRESS, places)
    x = torch.randn(R, V, generator=values, device=device) * torch.randint(1, 3, (R, 1), generator=places, device=device)
    for name, rows in classes.items():
        # Some classes do one thing to even rows and another to odd ones: begin with either.
        skipped = rows.start % 2
        stressed = stress(name, len(x[rows]) + skipped, V, places, values)[skipped:]
        disturb(name, stressed, places)
        x[rows] = stressed
    return (x,)


def generators(seed: int, device: str) -> tuple[torch.Generator, torch.Generator]:
    """Two generators on `device`: for places and choices, and for values."""
    # torch's CPU generator keeps only the low 32 bits of its seed, so seeds are hashed: every bit of `seed` counts.
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
    places, values = torch.Generator(device), torch.Generator(device)
    places.manual_seed(int.from_bytes(digest[:4], "little"))
    values.manual_seed(int.from_bytes(digest[4:], "little"))
    return places, values


def hard(rows: int, classes: Sequence[str], places: torch.Generator) -> dict[str, slice]:
    """The rows of each class: every eighth is hard, beginning with a random one, and those take the classes in turn."""
    first = places.initial_seed() % (HARD * len(classes))  # not a number drawn on the GPU, for which the judge would wait
    at = range(first % HARD, rows, HARD)
    turns = {name: at[(number - first // HARD) % len(classes) :: len(classes)] for number, name in enumerate(classes)}
    return {name: slice(each.start, each.stop, each.step) for name, each in turns.items() if each}


def stress(input_class: str, R: int, V: int, places: torch.Generator, values: torch.Generator) -> Tensor:
    """(R, V) logits of a stress class."""
    device = values.device
    if input_class == "near_constant":
        return torch.rand(R, V, generator=values, device=device) * -0.01
    normal = torch.randn(R, V, generator=values, device=device)
    match input_class:
        case "descending" | "ascending":
            ramp = torch.linspace(0, -16, V, device=device) + 0.01 * normal
            return ramp if input_class == "descending" else ramp.flip(1)
        case "one_big":
            # Each of the others is below half of what the sum of 1 can take up, and together they weigh 4e-3.
            anywhere = torch.randint(0, V, (R, 1), generator=places, device=device)
            return (0.001 * normal - 17.3).scatter_(1, anywhere, 0.0)
        case "sigma4":
            return 4 * normal
        case "large_logits":
            # +-1e4 at three sigma; in every other row all are below -1e4, where exp gives nothing but zeros.
            normal[1::2] = -normal[1::2].abs() - 3
            return 3333 * normal
        case "minus_inf":
            return with_minus_inf(normal, places)
        case "all_equal":
            return all_equal(normal, places)
        case _:
            # Three more, not many: equal results are rounded in the same direction and do not average out.
            copies = torch.randint(0, V, (R, 3), generator=places, device=device)
            return normal.scatter_(1, copies, normal.amax(1, keepdim=True).expand(-1, 3))


def disturb(input_class: str, x: Tensor, places: torch.Generator) -> None:
    """Give half of the rows of which a few logits would tell the rest a flaw anywhere, in place: what is left unread is wrong.

    Of equal logits one is ln 2 larger and another -inf, so that the sum is a power of two as before. Of those at -inf one is 0.
    """
    if input_class not in ("minus_inf", "all_equal"):
        return
    gone, equal = x == -torch.inf, input_class == "all_equal"
    order = torch.rand(x.shape, generator=places, device=x.device).masked_fill_(gone if equal else ~gone, -1)
    chosen = torch.rand(len(x), 1, generator=places, device=x.device) < 0.5
    for flaw, place in zip((LN_2, -torch.inf) if equal else (0.0,), order.topk(2).indices.split(1, 1), strict=False):
        old = x.gather(1, place)
        x.scatter_(1, place, torch.where(chosen, old + flaw if equal else flaw, old))


def with_minus_inf(x: Tensor, places: torch.Generator) -> Tensor:
    """A tenth of all, and in every other row all but a quarter, in one piece that begins anywhere."""
    R, V = x.shape
    gone = torch.rand(R, V, generator=places, device=x.device) < 0.1
    first = torch.randint(0, V, (R, 1), generator=places, device=x.device)
    gone[1::2] |= ((torch.arange(V, device=x.device) - first) % V >= -(-V // 4))[1::2]
    gone.scatter_(1, first, False)
    return x.masked_fill_(gone, -torch.inf)


def all_equal(x: Tensor, places: torch.Generator) -> Tensor:
    """Equal logits, as many as the largest power of two has room for, and -inf at random places for the rest.

    1 / n is exact then. With another n all y are rounded in the same direction: no fp32 answer has rows that sum to 1.
    """
    R, V = x.shape
    order = torch.rand(R, V, generator=places, device=x.device).argsort(1)
    return torch.where(order < 2 ** (V.bit_length() - 1), 10 * x[:, :1], -torch.inf)


def reference(x: Tensor) -> Tensor:
    """The answer (R, V) in fp64."""
    return x.double().softmax(-1)


def errors(outs: tuple[Tensor], refs: tuple[Tensor], inputs: Inputs) -> dict[str, float]:
    """The worst of all rows but one (`but_one`) and of all elements; each is to be at most the limit of its name."""
    row_masses = but_one(mass(outs[0], refs[0]), outs[0])
    return {"mass": float(row_masses.max()), "el": float(el(outs[0], refs[0], inputs[0]).max())}


def mass(y: Tensor, p: Tensor) -> Tensor:
    """(R): how far a row's sum is off 1, in units of U (0.01 + sqrt(sum p**2)).

    An error of exp stands in the numerator and in the denominator alike and cancels. What is left is the error of the sum and
    of the division, and the rounding of the single y, which averages out to about 0.3 U sqrt(sum p**2) in all rows but a few.
    """
    return off(y) / (U * (0.01 + p.norm(dim=-1)))


def off(y: Tensor) -> Tensor:
    """(R): how far a row's sum is off 1."""
    return (y.sum(-1, dtype=torch.float64) - 1).abs()


def but_one(row_masses: Tensor, y: Tensor) -> Tensor:
    """(R): the same with 0 for the largest, where there are several rows and that one is off by U or less.

    Exponentials are multiplied by 1 / S, or by such a factor for part of a row. Where it lies within some 2**-24 of k / q,
    products with it end in one of q ways. Most are then rounded in the same direction, and the sum is off by up to 0.63 U / q,
    however exact each product is. That happens by chance, in one row of a million.
    """
    row = row_masses.argmax()
    if len(row_masses) > 1 and off(y[row]) <= U:
        row_masses[row] = 0
    return row_masses


def el(y: Tensor, p: Tensor, x: Tensor) -> Tensor:
    """(R, V): how far an element is off, in units of U p (1 + 0.375 |x - max x|). Rounding x - max x alone costs up to
    U |x - max x|. Beyond 1e200 where x is -inf and y is not 0."""
    none = x == -torch.inf
    depth = (x.amax(-1, keepdim=True).double() - x).masked_fill_(none, 0)
    apart = (p - y).abs_().add_(~none, alpha=-SMALLEST).clamp_min_(0)
    return apart.div_(torch.addcmul(p, p, depth, value=0.375).mul_(U).clamp_min_(TINY))


def worst(outs: tuple[Tensor], refs: tuple[Tensor], inputs: Inputs) -> str:
    """The row whose sum is off most, but for the one that may be, and the element that is."""
    (y,), (p,), (x,) = outs, refs, inputs
    row, at = int(but_one(mass(y, p), y).argmax()), int(el(y, p, x).argmax())
    r, i = divmod(at, x.shape[-1])
    apart = float(y[row].double().sum() - 1)
    total = f"1 {'-' if apart < 0 else '+'} {abs(apart):.3g}"
    return f"row {row} sums to {total}; y[{r}, {i}] is {y[r, i]:.8g} and should be {p[r, i]:.8g}"
