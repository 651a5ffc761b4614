"""Compensated softmax: what no sandbox sees. Stress inputs, further shapes, and the arithmetic that the ceiling counts."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .reference import Inputs, generators
from .reference import make_inputs as make_public_inputs

CEILING_DTYPE = "fp32"

EXTRA_SHAPES: dict[str, tuple[dict[str, int], ...]] = {
    "cpu": ({"R": 64, "V": 1000}, {"R": 33, "V": 4097}),
    "gpu": ({"R": 64, "V": 1000}, {"R": 33, "V": 4097}, {"R": 100, "V": 32771}, {"R": 40, "V": 300007}),
}
"""Checked for correctness only. All shapes have 32 rows or more: a sum that is not compensated is close to 1 by luck in up to
half of its rows, and never in all of so many."""

INPUT_CLASSES: tuple[str, ...] = (
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


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str, device: str = "cpu") -> Inputs:
    """One stress set. Sizes depend on the shape and the input class alone. Class `public` is the public distribution."""
    if input_class == "public":
        return make_public_inputs(shape, seed, device=device)
    if input_class not in INPUT_CLASSES:
        raise ValueError(f"unknown input class {input_class!r} (known: public, {', '.join(INPUT_CLASSES)})")
    R, V = shape["R"], shape["V"]
    places, values = generators(seed, device)
    normal = torch.randn(R, V, generator=values, device=device)
    anywhere = torch.randint(0, V, (R, 1), generator=places, device=device)
    match input_class:
        case "near_constant":
            return (torch.rand(R, V, generator=values, device=device) * -0.01,)
        case "descending" | "ascending":
            ramp = torch.linspace(0, -16, V, device=device) + 0.01 * normal
            return (ramp if input_class == "descending" else ramp.flip(1),)
        case "one_big":
            # Each of the others is below half of what the sum of 1 can take up, and together they weigh 4e-3.
            return ((0.001 * normal - 17.3).scatter_(1, anywhere, 0.0),)
        case "sigma4":
            return (4 * normal,)
        case "large_logits":
            # +-1e4 at three sigma; in every other row all are below -1e4, where exp gives nothing but zeros.
            normal[1::2] = -normal[1::2].abs() - 3
            return (3333 * normal,)
        case "minus_inf":
            return (_with_minus_inf(normal, places),)
        case "all_equal":
            return (_all_equal(normal, places),)
        case _:
            # Three more, not many: equal results are rounded in the same direction and do not average out.
            copies = torch.randint(0, V, (R, 3), generator=places, device=device)
            return (normal.scatter_(1, copies, normal.amax(1, keepdim=True).expand(-1, 3)),)


def _with_minus_inf(x: Tensor, places: torch.Generator) -> Tensor:
    """A tenth of all, and in every other row all but a quarter, in one piece that begins anywhere."""
    R, V = x.shape
    gone = torch.rand(R, V, generator=places, device=x.device) < 0.1
    first = torch.randint(0, V, (R, 1), generator=places, device=x.device)
    gone[1::2] |= ((torch.arange(V, device=x.device) - first) % V >= -(-V // 4))[1::2]
    gone.scatter_(1, first, False)
    return x.masked_fill_(gone, -torch.inf)


def _all_equal(x: Tensor, places: torch.Generator) -> Tensor:
    """Equal logits, as many as the largest power of two has room for, and -inf at random places for the rest.

    1 / n is exact then. With another n all y are rounded in the same direction: no fp32 answer has rows that sum to 1.
    """
    R, V = x.shape
    order = torch.rand(R, V, generator=places, device=x.device).argsort(1)
    return torch.where(order < 2 ** (V.bit_length() - 1), 10 * x[:, :1], -torch.inf)
