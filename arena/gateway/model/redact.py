"""What may leave the gateway: answers without the real key, and words fit for a record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from arena.files.text import plain


class Guard:
    """Looks through one answer as it passes."""

    def __init__(self, key: str | None) -> None:
        self._key = (key or "").encode()
        self._kept = b""
        self.found = False

    def feed(self, piece: bytes) -> bytes:
        """What of the answer may go on. The key's beginning at the end of a piece is kept back, as its rest may follow."""
        if not self._key:
            return piece
        data = self._kept + piece
        if self.found or self._key in data:
            self.found = True
            return b""
        kept = self._begun(data)
        self._kept = data[len(data) - kept :]
        return data[: len(data) - kept]

    def rest(self) -> bytes:
        """What was kept back, and was no key."""
        return b"" if self.found else self._kept

    def _begun(self, data: bytes) -> int:
        """Length of the longest beginning of the key that stands at the end."""
        longest = min(len(self._key) - 1, len(data))
        if self._key[0] not in data[len(data) - longest :]:
            return 0
        return next((length for length in range(longest, 0, -1) if data.endswith(self._key[:length])), 0)


def scrubbed(text: str, key: str | None) -> str:
    """The text without the key."""
    return text.replace(key, "[the key]") if key else text


SAID = 1024
"""Characters of a message that are kept."""
NAME = 200
EFFORT = re.compile(r"[A-Za-z0-9_. -]{1,60}")
DEPTH = 6
"""Of a provider's usage object: far more than any has, far less than a reader of JSON takes."""


def said(text: str) -> str:
    """A message, as one line."""
    return plain(text, SAID)


def name(value: object) -> str | None:
    """A name; None where there is none."""
    return plain(value, NAME) or None if isinstance(value, str) else None


def effort(value: object) -> str | None:
    """An effort as it stands in a request; `other` where none would be written so."""
    if value is None:
        return None
    text = str(value)
    return text if EFFORT.fullmatch(text) else "other"


def clean(value: Any, depth: int = DEPTH) -> Any:  # noqa: ANN401  JSON
    """JSON data with plain words and names; what lies deeper than `depth` is left out."""
    match value:
        case str():
            return plain(value, NAME)
        case Mapping() if depth:
            return {plain(key, NAME): clean(inner, depth - 1) for key, inner in value.items()}
        case list() if depth:
            return [clean(inner, depth - 1) for inner in value]
        case Mapping() | list():
            return None
    return value
