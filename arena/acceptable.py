"""What a solution.py has to be to be taken: a regular file of UTF-8 text that shows a reader what Python runs."""

from __future__ import annotations

import io
import os
import stat
import tokenize
import unicodedata

MOST_BYTES = 1 << 20
"""Largest file that is taken."""
KINDS = {stat.S_IFLNK: "symbolic link", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFDIR: "directory",
         stat.S_IFCHR: "device", stat.S_IFBLK: "device"}  # fmt: skip
# Hangul fillers: letters by category, but blank on the screen. An identifier made of them is invisible.
BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")
# Control and format characters (bidi overrides, zero width, tags) and separators make an editor show other code than Python runs.
INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp"})
PLAIN_CONTROLS = frozenset("\t\n\r\f")


class Unacceptable(Exception):  # noqa: N818  an outcome, not an error
    """The file is not taken; its text is one sentence for people."""


def require_regular(name: str, status: os.stat_result, most_bytes: int = MOST_BYTES) -> None:
    """Unacceptable unless this is the status of a regular file of one name and at most that size. `name` is for the message."""
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise Unacceptable(f"{name} is a {KINDS.get(kind, 'special file')}; only a regular file is taken")
    # A second name can belong to a file outside the folder (a hard link needs no read permission), or keep the file writable.
    if status.st_nlink > 1:
        raise Unacceptable(f"{name} has {status.st_nlink} hard links; only a file with one name is taken")
    if status.st_size > most_bytes:
        raise Unacceptable(f"{name} is too large: {status.st_size} bytes (at most {most_bytes})")


def source_of(name: str, data: bytes) -> bytes:
    """The source that these bytes of a file are taken as: without a byte order mark, which Python skips too. Unacceptable."""
    if len(data) > MOST_BYTES:
        raise Unacceptable(f"{name} is too large: {len(data)} bytes (at most {MOST_BYTES})")
    source = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unacceptable(f"{name} is not UTF-8 text: byte {error.start} ({error.reason})") from None
    if not text.strip():
        raise Unacceptable(f"{name} is empty")
    _reject_invisible(name, text)
    _reject_other_encoding(name, source)
    return source


def _reject_invisible(name: str, text: str) -> None:
    for index, character in enumerate(text):
        if (character.isascii() and character.isprintable()) or character in PLAIN_CONTROLS:
            continue
        if unicodedata.category(character) in INVISIBLE_CATEGORIES or character in BLANK_LETTERS:
            line = text.count("\n", 0, index) + 1
            title = unicodedata.name(character, "a control character")
            raise Unacceptable(f"{name}:{line} holds U+{ord(character):04X} ({title}), which a reader cannot see; remove it")


def _reject_other_encoding(name: str, source: bytes) -> None:
    """With a coding line other than UTF-8, Python would run other characters than those that were checked."""
    lines = io.BytesIO(source.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
    try:
        encoding, _ = tokenize.detect_encoding(lines.readline)
    except SyntaxError as error:
        raise Unacceptable(f"{name}: {error.msg}") from None
    if encoding != "utf-8":
        raise Unacceptable(f"{name} declares the encoding {encoding}; only UTF-8 is taken")
