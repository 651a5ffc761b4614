"""Text made safe to pass on: answers without the real key, and records of printable plain text only."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from arena.files.text import plain

MESSAGE_CHARS = 1024
"""Kept of a message."""
NAME_CHARS = 200
EFFORT = re.compile(r"[A-Za-z0-9_. -]{1,60}")
ESCAPE = re.compile(rb"\\{1,2}u00([0-7][0-9a-fA-F])|%([0-7][0-9a-fA-F])|&#[xX]([0-7]?[0-9a-fA-F]);")
DECIMAL = re.compile(rb"&#(\d{1,3});")
ENTITIES = {b"&lt;": b"<", b"&gt;": b">", b"&quot;": b'"', b"&apos;": b"'", b"&amp;": b"&"}
ESCAPED_CHARS = 7
"""The most bytes in which an escape spells one character: a backslash, perhaps twice, and `u0041`."""
KEY_CHARACTERS = bytes(range(0x21, 0x7F))
"""Characters that a key can have: all that are printable, without the space."""
DEPTH = 6
"""Of a provider's usage object: far more than any has, far less than a JSON reader takes."""


@lru_cache(maxsize=8)
def _forms(key: str) -> tuple[bytes, ...]:
    """The key as an answer may spell it: as it is, in one case, backwards, and in the encodings that programs use for headers."""
    data = key.encode()
    # In base64 the key's first and last characters depend on what stands beside it: they are left out.
    aligned = [base64.b64encode(b"\0" * before + data)[(0, 2, 3)[before] :].rstrip(b"=")[:-1] for before in range(3)]
    encoded = [form.translate(alphabet) for form in aligned for alphabet in (None, bytes.maketrans(b"+/", b"-_"))]
    hexadecimal = [data.hex().encode(), data.hex().upper().encode()]
    return tuple(dict.fromkeys([data, data.lower(), data.upper(), data[::-1], *encoded, *hexadecimal]))


def _unescaped(data: bytes) -> bytes:
    """The data without JSON's and HTML's escapes and without percent signs for characters."""
    data = ESCAPE.sub(lambda found: bytes([int(found[1] or found[2] or found[3], 16)]), data) if ESCAPE.search(data) else data
    data = DECIMAL.sub(lambda found: bytes([int(found[1]) & 127]), data) if b"&#" in data else data
    for name, sign in ENTITIES.items():
        data = data.replace(name, sign)
    return data.replace(b"\\/", b"/").replace(b'\\"', b'"').replace(b"\\\\", b"\\")


def holds_key(data: bytes, key: str | None) -> bool:
    """Whether the data contains the key in any spelling that this module knows."""
    if not key:
        return False
    plain_data = _unescaped(data) if any(sign in data for sign in b"\\%&") else data
    return any(form in data or form in plain_data for form in _forms(key))


class KeyGuard:
    """Filter that keeps the real key out of one answer as it passes.

    What it holds back depends on the length of the key alone, never on its characters: otherwise the sizes of the pieces inside
    the sandbox would confirm each character that a program guesses and the provider echoes.
    """

    def __init__(self, key: str | None) -> None:
        self._key = key or ""
        self._most = ESCAPED_CHARS * len(self._key) - 1
        self._held = b""
        self.found = False

    def feed(self, piece: bytes) -> bytes:
        """The part that may pass. Characters of a key at the end of a piece are held back, as more may follow."""
        if not self._key:
            return piece
        data = self._held + piece
        if self.found or holds_key(data, self._key):
            self.found, self._held = True, b""
            return b""
        end = data[max(0, len(data) - self._most) :]
        held = len(end) - len(end.rstrip(KEY_CHARACTERS)) if end else 0
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def rest(self) -> bytes:
        """What was held back and is not the key."""
        return b"" if self.found else self._held


def scrubbed(text: str, key: str | None) -> str:
    """The text without the key."""
    if not key:
        return text
    for form in _forms(key):
        text = text.replace(form.decode(), "[the key]")
    return "[text that holds the key]" if holds_key(text.encode(errors="replace"), key) else text


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
