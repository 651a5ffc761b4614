"""Text made safe to pass on: answers without the real key, and records of printable plain text only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from arena.files.text import plain

MESSAGE_CHARS = 1024
"""Kept of a message."""
NAME_CHARS = 200
EFFORT = re.compile(r"[A-Za-z0-9_. -]{1,60}")
DEPTH = 6
"""Of a provider's usage object: far more than any has, far less than a JSON reader takes."""


class KeyGuard:
    """Filter that keeps the real key out of one answer as it passes."""

    def __init__(self, key: str | None) -> None:
        self._key = (key or "").encode()
        self._held = b""
        self.found = False

    def feed(self, piece: bytes) -> bytes:
        """The part that may pass. A start of the key at the end of a piece is held back, as the rest may follow."""
        if not self._key:
            return piece
        data = self._held + piece
        if self.found or self._key in data:
            self.found = True
            return b""
        held = self._key_start(data)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def rest(self) -> bytes:
        """What was held back and is not the key."""
        return b"" if self.found else self._held

    def _key_start(self, data: bytes) -> int:
        """Length of the longest start of the key at the end of the data."""
        longest = min(len(self._key) - 1, len(data))
        if self._key[0] not in data[len(data) - longest :]:
            return 0
        return next((length for length in range(longest, 0, -1) if data.endswith(self._key[:length])), 0)


def scrubbed(text: str, key: str | None) -> str:
    """The text without the key."""
    return text.replace(key, "[the key]") if key else text


def plain_message(text: str) -> str:
    """A message as one line of plain text. YAML and JSON take no lone surrogate."""
    return plain(text, MESSAGE_CHARS)


def plain_name(value: object) -> str | None:
    """A name as plain text; None when the value is not a name."""
    return plain(value, NAME_CHARS) or None if isinstance(value, str) else None


def plain_effort(value: object) -> str | None:
    """An effort as the request writes it; `other` when it does not look like one."""
    return None if value is None else str(value) if EFFORT.fullmatch(str(value)) else "other"


def plain_json(value: Any, depth: int = DEPTH) -> Any:  # noqa: ANN401  JSON
    """JSON data with plain strings and names. Drops what lies deeper than `depth`."""
    match value:
        case str():
            return plain(value, NAME_CHARS)
        case Mapping() if depth:
            return {plain(key, NAME_CHARS): plain_json(inner, depth - 1) for key, inner in value.items()}
        case list() if depth:
            return [plain_json(inner, depth - 1) for inner in value]
        case Mapping() | list():
            return None
    return value
