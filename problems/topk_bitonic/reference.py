"""The k largest of every row: how the inputs are drawn, the exact answer, and what counts as one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Inputs = tuple[Tensor, Tensor]
"""x (rows, n) fp32, ranks (k) int32."""

STRESS = (
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
"""Classes of rows."""
SPREAD = ("block", "stride", "ascending", "descending", "constant", "infinities", "negative")
"""Those whose rows have a mean and a scale of their own, as ordinary ones do."""
REGULAR = ("cluster", "block", "stride", "ascending", "descending", "ties", "constant")
"""Those of which a few elements tell where the winners are. In a timed set half of these rows have one larger element anywhere: a
kernel that looks at a few and leaves the rest unread is wrong."""
HARD = 8
"""One row in so many is as hard as the stress classes: no test tells these from timed inputs."""

LIFT = 20.0
"""Added to normal numbers to make winners of them: far more than the largest of 2**27 others (5.7)."""
FINITE = 7
"""Finite elements of a row at most, where the others are -inf."""
EXPONENT = 0x7F800000


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str = "public", device: str = "cpu") -> Inputs:
    """One input set. Sizes depend on the shape alone, values on the seed; torch's global generator is not used."""
    if input_class != "public":
        raise ValueError(f"unknown input class {input_class!r} (known: public)")
    places, values = generators(seed, device)
    classes = hard(shape["rows"], STRESS, places)
    x = torch.randn(shape["rows"], shape["n"], generator=values, device=device)
    spread_rows = {name: x[rows] for name, rows in classes.items() if name in SPREAD}
    for name, z in spread_rows.items():
        arrange(name, z, shape["k"], places)
    spread(x, values)
    for name, some in spread_rows.items():
        finish(name, some, shape["k"], places)
    for name, rows in classes.items():
        if name not in SPREAD:
            z = torch.randn(x[rows].shape, generator=values, device=device)
            x[rows] = draw(name, z, shape["k"], places, values)
    disturb(x, places)
    return x, ranks(shape["k"], device)


def generators(seed: int, device: str) -> tuple[torch.Generator, torch.Generator]:
    """Two generators on `device`: for places, and for values."""
    # torch's CPU generator keeps only the low 32 bits of its seed, so seeds are hashed: every bit of `seed` counts.
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
    places, values = torch.Generator(device), torch.Generator(device)
    places.manual_seed(int.from_bytes(digest[:4], "little"))
    values.manual_seed(int.from_bytes(digest[4:], "little"))
    return places, values


def spread(x: Tensor, values: torch.Generator) -> Tensor:
    """`x` in place, with a mean and a scale of its own for every row."""
    # No bound that is known beforehand, or that was right for an earlier call, fits these rows.
    mean, scale = torch.randn(2, x.shape[0], 1, generator=values, device=x.device)
    scale.exp_()
    return torch.addcmul(mean * scale, x, scale, out=x)


def ranks(k: int, device: str) -> Tensor:
    """0 to k - 1 (int32). Operators take tensors alone: this one says by its length how many are wanted."""
    return torch.arange(k, dtype=torch.int32, device=device)


def beginning(classes: Sequence[str], places: torch.Generator) -> int:
    """Where the hard rows begin, and with which class: not a number drawn on the GPU, for which the judge would wait."""
    return places.initial_seed() % (HARD * len(classes))


def hard(rows: int, classes: Sequence[str], places: torch.Generator) -> dict[str, slice]:
    """The rows of each class: every eighth is hard, beginning with a random one, and those take the classes in turn."""
    first = beginning(classes, places)
    at = range(first % HARD, rows, HARD)
    turns = {name: at[(number - first // HARD) % len(classes) :: len(classes)] for number, name in enumerate(classes)}
    return {name: slice(each.start, each.stop, each.step) for name, each in turns.items() if each}


def draw(input_class: str, z: Tensor, k: int, places: torch.Generator, values: torch.Generator) -> Tensor:
    """A matrix of that class from standard normal numbers `z`, which are used up."""
    if input_class in SPREAD:
        arrange(input_class, z, k, places)
        return finish(input_class, spread(z, values), k, places)
    match input_class:
        case "cluster" | "denormal" | "wide":
            return of_bits(input_class, z, values)
        case "ties":
            levels = torch.randint(0, 64, z.shape, generator=values, device=z.device, dtype=torch.int32)
            return levels.add_(torch.randint(-64, 64, (len(z), 1), generator=values, device=z.device, dtype=torch.int32)).float()
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
    raise AssertionError(input_class)


def disturb(x: Tensor, places: torch.Generator) -> None:
    """Give half of the rows of regular classes, by chance, an element anywhere that is larger than all others; in place."""
    first = beginning(STRESS, places)
    rows = x[first % HARD :: HARD]
    number = (torch.arange(len(rows), device=x.device) + first // HARD) % len(STRESS)
    regular = torch.full_like(number, sum(1 << STRESS.index(name) for name in REGULAR)) >> number & 1
    chosen = torch.rand(len(rows), generator=places, device=x.device) * regular > 0.5
    place, largest = random_places(rows, 1, places), rows.amax(1, keepdim=True)
    rows.scatter_(1, place, torch.where(chosen[:, None], largest + largest.abs() + 1, rows.gather(1, place)))


def arrange(input_class: str, z: Tensor, k: int, places: torch.Generator) -> None:
    """What a class does to standard normal numbers before their rows get a mean and a scale; in place."""
    match input_class:
        case "block":
            z.add_(block(z, k, places), alpha=LIFT)
        case "stride":
            z.add_(stride(z, k, places), alpha=LIFT)
        case "ascending" | "descending":
            z.copy_(z.sort(dim=-1, descending=input_class == "descending").values)
        case "constant":
            z.copy_(z[:, :1].clone())


def finish(input_class: str, x: Tensor, k: int, places: torch.Generator) -> Tensor:
    """What a class does to rows that have their mean and scale; in place."""
    match input_class:
        case "infinities":
            # Up to twice as many as are wanted, on an average: where there are fewer, ordinary elements follow.
            share = torch.rand(len(x), 1, generator=places, device=x.device).mul_(2 * k / x.shape[1])
            chance = torch.rand(x.shape, generator=places, device=x.device)
            x.masked_fill_(chance > 0.9, -torch.inf).masked_fill_(chance < share, torch.inf)
        case "negative":
            x.abs_().add_(torch.finfo(x.dtype).tiny).neg_()
    return x


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


def reference(x: Tensor, ranks: Tensor) -> tuple[Tensor, Tensor]:
    """The values (rows, k) in fp64, largest first, and one choice of their places (rows, k) int64."""
    found = x.topk(len(ranks), dim=-1)
    return found.values.double(), found.indices


def errors(outs: tuple[Tensor, ...], refs: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> dict[str, float]:
    """How many of the (rows, k) answers are wrong, by kind. -0 equals 0, and which of equal elements is named is free."""
    return {kind: float(wrong.sum()) for kind, wrong in faults(outs, refs, inputs).items()}


def worst(outs: tuple[Tensor, ...], refs: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> str:
    """The first wrong answer, in words."""
    (values, indices), wanted, x = outs, refs[0], inputs[0]
    for kind, wrong in faults(outs, refs, inputs).items():
        if wrong.any():
            row, rank = (int(i) for i in wrong.nonzero()[0])
            value, index = values[row, rank].item(), int(indices[row, rank])
            match kind:
                case "values":
                    return f"values[{row}, {rank}] is {value:.9g} and should be {wanted[row, rank].item():.9g}"
                case "gather":
                    return f"values[{row}, {rank}] is {value:.9g}, and x[{row}, {index}], named there, {x[row, index].item():.9g}"
                case "range":
                    return f"indices[{row}, {rank}] is {index}, and a row has {x.shape[1]} elements"
                case "repeats":
                    return f"indices[{row}] names {index} more than once"
    return "nothing is wrong"


def faults(outs: tuple[Tensor, ...], refs: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """(rows, k) bool for each kind of fault: True where an answer has it."""
    (values, indices), wanted, x = outs, refs[0], inputs[0]
    last = x.shape[1] - 1
    outside = (indices < 0) | (indices > last)
    order = indices.sort(dim=-1, stable=True)
    repeats = torch.zeros_like(outside)
    repeats.scatter_(-1, order.indices[:, 1:], order.values[:, 1:] == order.values[:, :-1])
    return {
        "values": values != wanted,
        "gather": ~outside & (x.gather(-1, indices.clamp(0, last)) != values),
        "range": outside,
        "repeats": repeats,
    }
