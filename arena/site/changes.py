"""Differences between two sources, for a reader."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from markupsafe import Markup

from arena.site.text import LINE_CHARACTERS, marked

MOST_LINES = 2000
"""Of each side: in the worst case the time of a comparison grows with the square of their number."""
MOST_SHOWN, MOST_CHARACTERS = 1500, 100_000
"""Lines of a difference, and characters in them."""
KINDS = {"+": "add", "-": "del", "@": "hunk"}


class Change(NamedTuple):
    """What differs between two sources."""

    title: str
    lines: Sequence[Markup]
    added: int
    removed: int
    note: str = ""
    """What is left out."""


def change(title: str, before: str, after: str, names: tuple[str, str]) -> Change:
    """The lines that differ, with three lines around them."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > MOST_LINES:
        return Change(title, (), 0, 0, f"{len(old):,} and {len(new):,} lines are too many to compare (at most {MOST_LINES:,})")
    found = list(difflib.unified_diff(old, new, *names, lineterm=""))
    changed = found[2:]
    added, removed = (sum(line.startswith(sign) for line in changed) for sign in "+-")
    sizes = accumulate(min(len(line), LINE_CHARACTERS) for line in found[:MOST_SHOWN])
    kept = found[: sum(size <= MOST_CHARACTERS for size in sizes)]
    left_out = f"{len(found) - len(kept):,} more lines" if len(found) > len(kept) else "" if found else "The two are equal."
    return Change(title, tuple(_marked(kept)), added, removed, left_out)


def _marked(lines: Sequence[str]) -> Iterator[Markup]:
    for number, line in enumerate(lines):
        yield marked(line, "hunk" if number < 2 else KINDS.get(line[:1], "same"))
