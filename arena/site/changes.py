"""Differences between two sources, for a reader."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from arena.site.text import marked

MOST_LINES = 1500
"""Of each side: in the worst case the time of a comparison grows with the square of their number."""
MOST_SHOWN, MOST_BYTES = 1500, 500_000
"""Lines of a difference, and bytes of their markup."""
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
    old, new = lines(before), lines(after)
    if max(len(old), len(new)) > MOST_LINES:
        return Change(title, (), 0, 0, f"{len(old):,} and {len(new):,} lines are too many to compare (at most {MOST_LINES:,})")
    found = list(difflib.unified_diff(old, new, *names, lineterm=""))
    changed = found[2:]
    added, removed = (sum(line.startswith(sign) for line in changed) for sign in "+-")
    kept = tuple(_marked(found[:MOST_SHOWN]))
    left_out = f"{len(found) - len(kept):,} more lines" if len(found) > len(kept) else ""
    if not found:
        left_out = "The two are equal." if before == after else "Only the end of the last line differs."
    return Change(title, kept, added, removed, left_out)


def lines(text: str) -> list[str]:
    """The lines of a source, as its page numbers them: only a line feed ends one."""
    found = text.split("\n")
    return found if found[-1] else found[:-1]


def _marked(found: Sequence[str]) -> Iterator[Markup]:
    size = 0
    for number, line in enumerate(found):
        shown = marked(line, "hunk" if number < 2 else KINDS.get(line[:1], "same"))
        size += len(shown.encode())
        if size > MOST_BYTES:
            return
        yield shown
