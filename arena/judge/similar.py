"""How much of a well-known kernel a submission holds. This is evidence for a reviewer; it never decides a verdict.

`known_kernels.json.xz` holds fingerprints of kernels of packages that pip installs, with version and licence. It holds no source.
`scripts/make_fingerprints.py` writes it.
"""

from __future__ import annotations

import functools
import json
import lzma
from collections.abc import Set
from pathlib import Path
from typing import NamedTuple

from arena.judge.fingerprints import unpacked
from arena.schema import Similar

KNOWN = Path(__file__).with_name("known_kernels.json.xz")
LEAST_SHARE = 0.1
"""Smaller shares are not recorded: idioms that all kernels of a kind have."""
MOST_SOURCES = 5


class Known(NamedTuple):
    """One kernel of a package."""

    source: str
    fingerprints: frozenset[int]


@functools.cache
def known() -> tuple[Known, ...]:
    """All kernels of the list."""
    return tuple(
        Known(f"{package['name']} {package['version']}: {name}", frozenset(unpacked(packed)))
        for package in json.loads(lzma.decompress(KNOWN.read_bytes()))["packages"]
        for name, packed in package["kernels"].items()
    )


def similar(found: Set[int], kernels: tuple[Known, ...] | None = None) -> tuple[Similar, ...]:
    """The kernels of which a file with these fingerprints holds the largest shares, largest first.

    Of the known kernels, unless others are given.
    """
    kernels = known() if kernels is None else kernels
    shares = ((len(found & kernel.fingerprints) / len(kernel.fingerprints), kernel.source) for kernel in kernels)
    largest = sorted((each for each in shares if each[0] >= LEAST_SHARE), key=lambda each: (-each[0], each[1]))
    return tuple(Similar(source=name, share=round(share, 3)) for share, name in largest[:MOST_SOURCES])
