"""How much of a well-known kernel a submission holds. This is evidence for a reviewer; it never decides a verdict.

`known_kernels.json.xz` holds fingerprints of kernels of packages that pip installs, with version and licence. It holds no source.
`scripts/make_fingerprints.py` writes it.
"""

from __future__ import annotations

import base64
import functools
import json
import lzma
import tokenize
from pathlib import Path
from typing import NamedTuple

from arena.judge.fingerprints import HASH_BYTES, of_python
from arena.schema import Similar

KNOWN = Path(__file__).with_name("known_kernels.json.xz")
LEAST_SHARE = 0.1
"""Smaller shares are not recorded: idioms that all kernels of a kind have."""
REVIEW_SHARE = 0.3
"""From here on a person should look. Of this repository's own solutions none holds more than 0.19 of a kernel. A copy with other
names and a foreign statement after every fourth holds 0.47 or more (docs/tables/similar.md)."""
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


def similar(source: str, kernels: tuple[Known, ...] | None = None) -> tuple[Similar, ...]:
    """The kernels of which a Python file holds the largest shares, largest first; of the known ones unless others are given."""
    try:
        found = of_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return ()  # nothing of such a file runs
    kernels = known() if kernels is None else kernels
    shares = ((len(found & kernel.fingerprints) / len(kernel.fingerprints), kernel.source) for kernel in kernels)
    largest = sorted((each for each in shares if each[0] >= LEAST_SHARE), key=lambda each: (-each[0], each[1]))
    return tuple(Similar(source=name, share=round(share, 3)) for share, name in largest[:MOST_SOURCES])


def packed(fingerprints: set[int]) -> str:
    """Fingerprints as text."""
    return base64.b64encode(b"".join(value.to_bytes(HASH_BYTES) for value in sorted(fingerprints))).decode()


def unpacked(text: str) -> set[int]:
    """The fingerprints in such a text."""
    data = base64.b64decode(text)
    return {int.from_bytes(data[at : at + HASH_BYTES]) for at in range(0, len(data), HASH_BYTES)}
