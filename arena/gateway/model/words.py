"""What agents and providers say, made fit for a record: printable plain text, bounded. YAML and JSON take no lone surrogate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from arena.files.text import plain

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
