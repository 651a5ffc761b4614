"""Taking a file out of a folder that somebody hostile may own, or still be writing to.

A path is never followed twice: every component is opened by descriptor without following links, looked at before it is
really opened (so that no FIFO blocks and no device is touched), and the very same inode is then read through /proc.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tokenize
import unicodedata
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

SUBMISSION_BYTES = 1 << 20
"""Largest solution.py that is taken."""
KINDS = {stat.S_IFLNK: "symbolic link", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFDIR: "directory",
         stat.S_IFCHR: "device", stat.S_IFBLK: "device"}  # fmt: skip

# Letters by their category, blank on the screen: an identifier made of them cannot be seen (Hangul fillers).
BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")
# Control and format characters (bidi overrides, zero width, tags) and separators: an editor shows other code than Python runs.
INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp"})
PLAIN_CONTROLS = frozenset("\t\n\r\f")


class NoSubmission(Exception):  # noqa: N818  an outcome that a score records, not an error of arena
    """There is no file to take; `reason` is one sentence for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Submission:
    """The bytes of a solution: UTF-8 without a byte order mark, and visible to a reader as Python sees them."""

    source: bytes
    sha256: str

    @property
    def lines(self) -> int:
        """Lines as an editor counts them; a last line without its newline counts."""
        return self.source.count(b"\n") + (not self.source.endswith(b"\n"))


def collect(folder: Path, name: str = "solution.py", cap_bytes: int = SUBMISSION_BYTES) -> Submission:
    """The submission in `folder`, whatever stands there; raises NoSubmission. Safe while others write in the folder."""
    return submission_of(read_regular(folder, name, cap_bytes), name)


def submission_of(data: bytes, name: str = "solution.py") -> Submission:
    """The submission with this source; raises NoSubmission, which calls it `name`."""
    if len(data) > SUBMISSION_BYTES:
        raise NoSubmission(f"{name} is too large: {len(data)} bytes (at most {SUBMISSION_BYTES})")
    # Python skips a leading byte order mark; without it every reader of the source, ours and Python's, sees the same characters.
    source = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NoSubmission(f"{name} is not UTF-8 text: byte {error.start} ({error.reason})") from None
    if not text.strip():
        raise NoSubmission(f"{name} is empty")
    _refuse_invisible(name, text)
    _refuse_other_encoding(name, source)
    return Submission(source, hashlib.sha256(source).hexdigest())


def read_regular(folder: Path, relative: str, cap_bytes: int) -> bytes:
    """The bytes of a regular file inside `folder`, no link followed on the way; raises NoSubmission."""
    parts = PurePosixPath(relative).parts
    if not parts or relative.startswith("/") or ".." in parts or "\0" in relative:
        raise NoSubmission(f"{relative!r} is not a path inside the folder")
    try:
        held = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        for part in parts:
            try:
                inner = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=held)
            finally:
                os.close(held)
            held = inner
    except FileNotFoundError:
        raise NoSubmission(f"there is no {relative}") from None
    except NotADirectoryError:
        raise NoSubmission(f"the way to {relative} leads through something that is not a folder") from None
    except OSError as error:
        raise NoSubmission(f"{relative} cannot be opened: {error.strerror}") from None
    try:
        _refuse_irregular(relative, os.fstat(held), cap_bytes)
        return _read(relative, held, cap_bytes)
    finally:
        os.close(held)


def _refuse_irregular(name: str, found: os.stat_result, cap_bytes: int) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        raise NoSubmission(f"{name} is a {KINDS.get(kind, 'special file')}; arena takes regular files only")
    # A second name may stand for a file outside the folder (a hard link needs no right to read), or keep it writable afterwards.
    if found.st_nlink > 1:
        raise NoSubmission(f"{name} has {found.st_nlink} hard links; arena takes files with one name only")
    if found.st_size > cap_bytes:
        raise NoSubmission(f"{name} is too large: {found.st_size} bytes (at most {cap_bytes})")


def _read(name: str, held: int, cap_bytes: int) -> bytes:
    try:
        # Without waiting: whoever writes in the folder may hold a lease on the file, for which an open waits up to 45 s.
        reading = os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(reading, "rb", buffering=0) as file:
            before = os.fstat(file.fileno())
            data = b""
            while len(data) <= cap_bytes and (piece := file.read(cap_bytes + 1 - len(data))):
                data += piece
            after = os.fstat(file.fileno())
    except OSError as error:
        raise NoSubmission(f"{name} cannot be read: {error.strerror}") from None
    if len(data) > cap_bytes:
        raise NoSubmission(f"{name} is too large: it grew past {cap_bytes} bytes while it was read")
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or len(data) != after.st_size:
        raise NoSubmission(f"{name} changed while it was read")
    return data


def _refuse_invisible(name: str, text: str) -> None:
    for index, character in enumerate(text):
        if (character.isascii() and character.isprintable()) or character in PLAIN_CONTROLS:
            continue
        if unicodedata.category(character) in INVISIBLE_CATEGORIES or character in BLANK_LETTERS:
            line = text.count("\n", 0, index) + 1
            title = unicodedata.name(character, "a control character")
            raise NoSubmission(f"{name}:{line} holds U+{ord(character):04X} ({title}), which a reader cannot see; remove it")


def _refuse_other_encoding(name: str, source: bytes) -> None:
    """A coding line other than UTF-8 would make Python run other characters than those that were checked."""
    lines = io.BytesIO(source.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
    try:
        encoding, _ = tokenize.detect_encoding(lines.readline)
    except SyntaxError as error:
        raise NoSubmission(f"{name}: {error.msg}") from None
    if encoding != "utf-8":
        raise NoSubmission(f"{name} declares the encoding {encoding}; arena takes UTF-8 only")
