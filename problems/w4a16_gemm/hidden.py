"""4-bit weights times bf16 activations: what no sandbox sees. Stress inputs, further shapes, and the ceiling's arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

from .reference import OF_ACTIVATIONS, OF_WEIGHTS, Inputs, build, generators, stress_activations, stress_weights
from .reference import make_inputs as make_public_inputs

CEILING_DTYPE = "bf16"

EXTRA_SHAPES: dict[str, tuple[dict[str, int], ...]] = {
    "cpu": (
        {"M": 1, "N": 640, "K": 1536, "G": 128},
        {"M": 3, "N": 264, "K": 512, "G": 64},
        {"M": 3, "N": 250, "K": 1024, "G": 128},
        {"M": 17, "N": 301, "K": 768, "G": 128},
        {"M": 37, "N": 133, "K": 704, "G": 64},
    ),
    "gpu": (
        {"M": 3, "N": 264, "K": 512, "G": 64},
        {"M": 17, "N": 4104, "K": 11008, "G": 128},
        {"M": 67, "N": 1001, "K": 2112, "G": 64},
        {"M": 1000, "N": 2047, "K": 3200, "G": 128},
        {"M": 777, "N": 2056, "K": 1152, "G": 64},
    ),
}
"""Checked for correctness only: most sizes here fill no tile, M is 1 only here on a CPU, and G 64 only here on a GPU.
None is so small that one group of weights, or one activation, decides whether an honest rounding passes."""

INPUT_CLASSES: tuple[str, ...] = tuple(dict.fromkeys((*OF_WEIGHTS, *OF_ACTIVATIONS)))


def make_inputs(shape: Mapping[str, int], seed: int, input_class: str, device: str = "cpu") -> Inputs:
    """One stress set. Sizes depend on the shape and the input class alone. Class `public` is the public distribution."""
    if input_class == "public":
        return make_public_inputs(shape, seed, device=device)
    if input_class not in INPUT_CLASSES:
        raise ValueError(f"unknown input class {input_class!r} (known: public, {', '.join(INPUT_CLASSES)})")
    codes, values = generators(seed, device)
    x, qw, s, z = build(shape, codes, values)
    if input_class in OF_ACTIVATIONS:
        x = stress_activations(input_class, x, codes, values)
    if input_class in OF_WEIGHTS:
        qw, s, z = stress_weights(input_class, qw, s, z, codes, values)
    return x, qw, s, z
