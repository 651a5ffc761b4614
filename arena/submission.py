"""Reads a submission from a folder that a hostile agent owns and may still write to.

No path is resolved twice. Every component is opened by descriptor without following links, and inspected before it is opened
for reading, so that no FIFO blocks and no device is touched. The same inode is then read through /proc.
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
"""Largest accepted solution.py."""
KINDS = {stat.S_IFLNK: "symbolic link", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFDIR: "directory",
         stat.S_IFCHR: "device", stat.S_IFBLK: "device"}  # fmt: skip

# Hangul fillers: letters by category, but blank on the screen. An identifier made of them is invisible.
BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")
# Control and format characters (bidi overrides, zero width, tags) and separators make an editor show other code than Python runs.
INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp"})
PLAIN_CONTROLS = frozenset("\t\n\r\f")


class NoSubmission(Exception):  # noqa: N818  an outcome that a score records, not an ArenaError
    """There is no acceptable file; `reason` is one sentence for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Torn(NoSubmission):
    """The file changed while it was read: a moment later it may be whole."""


@dataclass(frozen=True)
class Submission:
    """The bytes of a solution: UTF-8 without a byte order mark, and without characters that a reader cannot see."""

    source: bytes
    sha256: str

    @property
    def lines(self) -> int:
        """Number of lines; a last line without a newline counts."""
        return self.source.count(b"\n") + (not self.source.endswith(b"\n"))


def collect(folder: Path, name: str = "solution.py", cap_bytes: int = SUBMISSION_BYTES) -> Submission:
    """The submission in `folder`, or NoSubmission. Safe while other processes write in the folder."""
    return submission_of(read_regular(folder, name, cap_bytes), name)


def submission_of(data: bytes, name: str = "solution.py") -> Submission:
    """The submission with this source, or a NoSubmission that calls it `name`."""
    if len(data) > SUBMISSION_BYTES:
        raise NoSubmission(f"{name} is too large: {len(data)} bytes (at most {SUBMISSION_BYTES})")
    # Python skips a leading byte order mark. Without it the judge and Python read the same characters.
    source = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = source.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NoSubmission(f"{name} is not UTF-8 text: byte {error.start} ({error.reason})") from None
    if not text.strip():
        raise NoSubmission(f"{name} is empty")
    _reject_invisible(name, text)
    _reject_other_encoding(name, source)
    return Submission(source, hashlib.sha256(source).hexdigest())


def read_regular(folder: Path, relative: str, cap_bytes: int) -> bytes:
    """The bytes of a regular file inside `folder`, without following any link; raises NoSubmission."""
    parts = PurePosixPath(relative).parts
    if not parts or relative.startswith("/") or ".." in parts or "\0" in relative:
        raise NoSubmission(f"{relative!r} is not a path inside the folder")
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        for part in parts:
            try:
                inner = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            descriptor = inner
    except FileNotFoundError:
        raise NoSubmission(f"there is no {relative}") from None
    except NotADirectoryError:
        raise NoSubmission(f"the path {relative} leads through something that is not a folder") from None
    except OSError as error:
        raise NoSubmission(f"{relative} cannot be opened: {error.strerror}") from None
    try:
        _reject_irregular(relative, os.fstat(descriptor), cap_bytes)
        return _read(relative, descriptor, cap_bytes)
    finally:
        os.close(descriptor)


def _reject_irregular(name: str, status: os.stat_result, cap_bytes: int) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        raise NoSubmission(f"{name} is a {KINDS.get(kind, 'special file')}; arena takes regular files only")
    # A second name can belong to a file outside the folder (a hard link needs no read permission), or keep the file writable.
    if status.st_nlink > 1:
        raise NoSubmission(f"{name} has {status.st_nlink} hard links; arena takes files with one name only")
    if status.st_size > cap_bytes:
        raise NoSubmission(f"{name} is too large: {status.st_size} bytes (at most {cap_bytes})")


def _read(name: str, descriptor: int, cap_bytes: int) -> bytes:
    try:
        # O_NONBLOCK: another process may hold a lease on the file, and an open would wait for it up to 45 s.
        file_descriptor = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(file_descriptor, "rb", buffering=0) as file:
            before = os.fstat(file.fileno())
            data = b""
            while len(data) <= cap_bytes and (chunk := file.read(cap_bytes + 1 - len(data))):
                data += chunk
            after = os.fstat(file.fileno())
    except OSError as error:
        raise NoSubmission(f"{name} cannot be read: {error.strerror}") from None
    if len(data) > cap_bytes:
        raise Torn(f"{name} is too large: it grew past {cap_bytes} bytes while it was read")
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or len(data) != after.st_size:
        raise Torn(f"{name} changed while it was read")
    return data


def _reject_invisible(name: str, text: str) -> None:
    for index, character in enumerate(text):
        if (character.isascii() and character.isprintable()) or character in PLAIN_CONTROLS:
            continue
        if unicodedata.category(character) in INVISIBLE_CATEGORIES or character in BLANK_LETTERS:
            line = text.count("\n", 0, index) + 1
            title = unicodedata.name(character, "a control character")
            raise NoSubmission(f"{name}:{line} holds U+{ord(character):04X} ({title}), which a reader cannot see; remove it")


def _reject_other_encoding(name: str, source: bytes) -> None:
    """With a coding line other than UTF-8, Python would run other characters than those that arena checked."""
    lines = io.BytesIO(source.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
    try:
        encoding, _ = tokenize.detect_encoding(lines.readline)
    except SyntaxError as error:
        raise NoSubmission(f"{name}: {error.msg}") from None
    if encoding != "utf-8":
        raise NoSubmission(f"{name} declares the encoding {encoding}; arena takes UTF-8 only")
