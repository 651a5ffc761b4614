"""fp8 times fp8 with a scale per row: how the inputs are drawn, and the exact answer in fp64."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
"""x (M, K) and w (N, K) float8_e4m3fn, sx (M, 1) and sw (N, 1) fp32."""

STRESS = ("largest", "zero_rows", "wide_scales", "subnormal", "last_places")
"""Classes of rows of x."""
OF_WEIGHTS = STRESS[:-1]
"""Of rows of w."""
HARD = 8
"""One row in so many is as hard as the stress classes: no test tells these from timed inputs."""

STILL_ZERO = 1 / 16
"""Share of `zero_rows` that are zero in timed sets. With more, to leave them out would be worth a look at all rows."""

LARGEST = 448.0
"""Of e4m3. Scales are such that the largest value of each row is just that."""

WEIGHTS_AT_ONCE = 2**24
"""Weights that the reference decodes at a time: 128 MiB in fp64, where the widest shape as a whole would take 1.8 GiB."""

TINY = 1e-300
"""Keeps 0 / 0 away where the answer is all zeros: no error then gives 0, any error a huge number."""


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str = "public", device: str = "cpu") -> Inputs:
    """One input set. Sizes depend on the shape alone, values on the seed; torch's global generator is not used."""
    if input_class != "public":
        raise ValueError(f"unknown input class {input_class!r} (known: public)")
    left, right = generators(seed, device)
    classes = [hard(rows, names, each) for rows, names, each in ((shape["M"], STRESS, left), (shape["N"], OF_WEIGHTS, right))]
    x, w, sx, sw = build(shape, left, right)
    for of_rows, values, scale, each in zip(classes, (x, w), (sx, sw), (left, right), strict=True):
        for name, rows in of_rows.items():
            hardened, scale[rows] = stress(name, values[rows], scale[rows], each)
            if name == "zero_rows":
                disturb(hardened, values[rows], each)
            values.view(torch.uint8)[rows] = hardened.view(torch.uint8)
    return x, w, sx, sw


def generators(seed: int, device: str) -> tuple[torch.Generator, torch.Generator]:
    """Two generators on `device`: for x and sx, and for w and sw."""
    # torch's CPU generator keeps only the low 32 bits of its seed, so seeds are hashed: every bit of `seed` counts.
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
    left, right = torch.Generator(device), torch.Generator(device)
    left.manual_seed(int.from_bytes(digest[:4], "little"))
    right.manual_seed(int.from_bytes(digest[4:], "little"))
    return left, right


def build(shape: Mapping[str, int], left: torch.Generator, right: torch.Generator) -> Inputs:
    """Inputs of the public distribution."""
    x, sx = quantised(shape["M"], shape["K"], 1.0, left)
    w, sw = quantised(shape["N"], shape["K"], 0.02, right)
    return x, w, sx, sw


def quantised(rows: int, K: int, size: float, values: torch.Generator) -> tuple[Tensor, Tensor]:
    """(rows, K) e4m3 and (rows, 1) fp32: normal numbers of that size, times a lognormal factor (sigma 1) for each row."""
    # Four bits are kept, so on a GPU eight are drawn. On a CPU some versions of torch draw none beyond 3.5 in bf16.
    drawn = torch.bfloat16 if values.device.type == "cuda" else torch.float32
    normal = torch.randn(rows, K, generator=values, dtype=drawn, device=values.device)
    factor = torch.randn(rows, 1, generator=values, device=values.device).exp_().mul_(size)
    step = torch.linalg.vector_norm(normal, ord=math.inf, dim=1, keepdim=True, dtype=torch.float32) / LARGEST
    return torch.div(normal, step, out=torch.empty_like(normal, dtype=torch.float8_e4m3fn)), step * factor


def hard(rows: int, classes: Sequence[str], places: torch.Generator) -> dict[str, slice]:
    """The rows of each class: every eighth is hard, beginning with a random one, and those take the classes in turn."""
    first = places.initial_seed() % (HARD * len(classes))  # not a number drawn on the GPU, for which the judge would wait
    at = range(first % HARD, rows, HARD)
    turns = {name: at[(number - first // HARD) % len(classes) :: len(classes)] for number, name in enumerate(classes)}
    return {name: slice(each.start, each.stop, each.step) for name, each in turns.items() if each}


def stress(input_class: str, rows: Tensor, scale: Tensor, values: torch.Generator) -> tuple[Tensor, Tensor]:
    """These rows of x or w and their scales, as a stress class has them."""
    match input_class:
        case "largest":
            # Their products are 49 * 2**12: sums that a Hopper GPU cuts to 14 bits lose nothing below 2**26.
            rows = torch.where(rows.float() < 0, -LARGEST, LARGEST).to(rows.dtype)
        case "zero_rows":
            rows, scale = torch.zeros_like(rows), torch.ones_like(scale)
        case "wide_scales":
            scale = wide(scale, values)
        case "subnormal":
            rows = subnormal(rows, values)
        case "last_places":
            # Most of what x has is in one of the last 16 columns, which may not be left out, and no other may be either.
            place = rows.shape[1] - 1 - torch.randint(0, 16, (1,), generator=values, device=rows.device)
            kept = torch.arange(rows.shape[1], device=rows.device) == place
            rows = torch.where(kept, LARGEST, rows.float() / 32).to(rows.dtype)
    return rows, scale


def disturb(rows: Tensor, usual: Tensor, values: torch.Generator) -> None:
    """Give most of these rows of zeros, by chance, what they had, in place: their scale would else tell that all is zero."""
    chosen = torch.rand(len(rows), 1, generator=values, device=values.device) >= STILL_ZERO
    rows.view(torch.uint8).copy_(usual.view(torch.uint8) * chosen)


def wide(scale: Tensor, values: torch.Generator) -> Tensor:
    """Log-uniform from 1e-4 to 1e4."""
    return torch.rand(scale.shape, generator=values, device=values.device).mul_(math.log(1e8)).add_(math.log(1e-4)).exp_()


def subnormal(like: Tensor, values: torch.Generator) -> Tensor:
    """Values below e4m3's smallest normal number, 2**-6: multiples of 2**-9 from -7 to 7."""
    count = torch.randint(-7, 8, like.shape, generator=values, device=values.device)
    return (count * 2.0**-9).to(like.dtype)


def reference(x: Tensor, w: Tensor, sx: Tensor, sw: Tensor) -> Tensor:
    """The answer (M, N) in fp64. Products of e4m3 are multiples of 2**-18 below 2**18: their sum is exact, whatever its order."""
    y = torch.empty(len(x), len(w), dtype=torch.float64, device=x.device)
    left, rows = x.double(), max(1, WEIGHTS_AT_ONCE // x.shape[1])
    for n in range(0, len(w), rows):
        y[:, n : n + rows] = left @ w[n : n + rows].double().T
    return y.mul_(sx.double()).mul_(sw.double().T)


def errors(outs: tuple[Tensor, ...], refs: tuple[Tensor, ...], inputs: Inputs) -> dict[str, float]:
    """Three relative errors, all of them after output and answer have been divided by sx * sw: else the rows and columns with
    the largest scales would be all that counts. With r the divided answer and e the difference from it:

    rel_fro: ||e|| / ||r||, over everything;
    row: the largest over all rows i of ||e_i|| / max(||r_i||, 0.001 * rms of the rows' norms);
    el: the largest over all elements of |e| / (max(rms(r_i), 0.001 * rms(r)) + |r|), i being the element's row.
    """
    e, r = apart(outs, refs, inputs)
    off, norm = e.norm(dim=-1), r.norm(dim=-1)
    return {
        "rel_fro": float(off.norm() / (norm.norm() + TINY)),
        "row": float((off / norm.clamp_min(1e-3 * norm.pow(2).mean().sqrt() + TINY)).max()),
        "el": float(of_elements(e, r).max()),
    }


def worst(outs: tuple[Tensor, ...], refs: tuple[Tensor, ...], inputs: Inputs) -> str:
    """The element with the largest `el`, before the division."""
    (out,), (ref,) = outs, refs
    at = divmod(int(of_elements(*apart(outs, refs, inputs)).argmax()), ref.shape[1])
    return f"y{list(at)} is {out[at].item():.6g} and should be {ref[at].item():.6g}"


def apart(outs: tuple[Tensor, ...], refs: tuple[Tensor, ...], inputs: Inputs) -> tuple[Tensor, Tensor]:
    """The difference and the answer in fp64, both divided by sx * sw."""
    (out,), (ref,), (_, _, sx, sw) = outs, refs, inputs
    scale = sx.double() * sw.double().T
    return (out - ref).div_(scale), ref / scale


def of_elements(e: Tensor, r: Tensor) -> Tensor:
    """Each element's error beside its own size and that of its row."""
    rms = r.norm(dim=-1, keepdim=True) / math.sqrt(r.shape[1])
    return e.abs() / r.abs().add_(rms.clamp_min(1e-3 * rms.pow(2).mean().sqrt() + TINY))
