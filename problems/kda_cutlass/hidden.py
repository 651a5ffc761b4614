"""Kimi Delta Attention: what no sandbox sees. Stress inputs, further shapes, and the arithmetic that the ceiling counts."""

from __future__ import annotations

from collections.abc import Mapping

from torch.nn.functional import normalize

from .reference import Inputs, build, generators
from .reference import make_inputs as make_public_inputs

CEILING_DTYPE = "bf16"

EXTRA_SHAPES: dict[str, tuple[dict[str, int], ...]] = {
    "cpu": (
        {"B": 1, "T": 100, "H": 2, "D": 64},
        {"B": 2, "T": 65, "H": 1, "D": 128},
        {"B": 3, "T": 1, "H": 4, "D": 64},
    ),
    "gpu": (
        {"B": 1, "T": 100, "H": 2, "D": 64},
        {"B": 2, "T": 65, "H": 1, "D": 128},
        {"B": 5, "T": 1, "H": 12, "D": 128},
        {"B": 3, "T": 777, "H": 5, "D": 64},
        {"B": 1, "T": 2111, "H": 7, "D": 128},
    ),
}
"""Checked for correctness only: one token, one more than 64, and a head size that is in no public shape.

No smaller D: with 16 channels the rows of an honest kernel that rounds its operands to bf16 are off by up to 2.3e-2 (measured).
"""

INPUT_CLASSES: tuple[str, ...] = (
    "strong_decay",
    "weak_decay",
    "no_decay",
    "correlated_keys",
    "beta_near_zero",
    "beta_near_one",
    "zero_state",
)


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str, device: str = "cpu") -> Inputs:
    """One stress set. Sizes depend on the shape alone. Class `public` is the public distribution."""
    if input_class == "public":
        return make_public_inputs(shape, seed, device=device)
    if input_class not in INPUT_CLASSES:
        raise ValueError(f"unknown input class {input_class!r} (known: public, {', '.join(INPUT_CLASSES)})")
    gates, values = generators(seed, device)
    match input_class:
        case "strong_decay":
            # Over 64 tokens the largest sum is about -400: exp(-G) is infinite in fp32 from 89 on.
            return build(shape, gates, values, least=1e-2, most=8.0)
        case "weak_decay":
            return build(shape, gates, values, least=1e-4, most=0.02)
        case "correlated_keys":
            # Products of two keys are about 0.5: the powers of their triangle grow to 1e7 before they vanish.
            return build(shape, gates, values, common=1.0)
        case "beta_near_zero":
            # With a spread of 1 a few tokens write a hundred times as much as the others: answers are then products with one key,
            # near 0 by chance, and bf16 operands lose up to 2.4e-2 of such a row among 32768 tokens (measured; 8.8e-3 with 0.5).
            return build(shape, gates, values, lean=-7.0, spread=0.5)
        case "beta_near_one":
            return build(shape, gates, values, lean=7.0)
    q, k, v, g, beta, S0 = build(shape, gates, values)
    if input_class == "no_decay":
        g.zero_()
    else:
        # Every query leans towards its own key: with q . k near 0 by chance the first outputs would be all cancellation,
        # and bf16 operands lose up to 0.4 of such a row (measured).
        S0.zero_()
        q = normalize(q.float() + k.float(), dim=-1).bfloat16()
    return q, k, v, g, beta, S0
