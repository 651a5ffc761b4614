"""Plain text: what a terminal and a record can hold."""

from __future__ import annotations

import unicodedata

SHOWN = 160
"""Characters of a line that a display is given."""


def plain(text: str, most: int = SHOWN) -> str:
    """One short line that a terminal shows as it is: no control or format characters, no escape codes, no surrogates."""
    spaced = " ".join(text[: 8 * most].split())
    return "".join(character for character in spaced if unicodedata.category(character)[0] != "C")[:most]
