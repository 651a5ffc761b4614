"""Server-sent events, which all four APIs stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PIECE = 40
"""Characters of text in one frame."""


@dataclass(frozen=True)
class Frame:
    """One event of a stream."""

    data: dict[str, Any] | str
    event: str | None = None

    def encoded(self) -> bytes:
        """The bytes on the wire."""
        text = self.data if isinstance(self.data, str) else json.dumps(self.data)
        return ((f"event: {self.event}\n" if self.event else "") + f"data: {text}\n\n").encode()


def pieces(text: str) -> Iterator[str]:
    """The text in the pieces in which the stub streams it."""
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))
