"""Reads a submission from a folder that a hostile agent owns and may still write to.

No path is resolved twice. Every component is opened by descriptor without following links, and inspected before it is opened
for reading, so that no FIFO blocks and no device is touched. The same inode is then read through /proc.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from arena.acceptable import MOST_BYTES, Unacceptable, require_regular, source_of


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


def collect(folder: Path, name: str = "solution.py", cap_bytes: int = MOST_BYTES) -> Submission:
    """The submission in `folder`, or NoSubmission. Safe while other processes write in the folder."""
    return submission_of(read_regular(folder, name, cap_bytes), name)


def submission_of(data: bytes, name: str = "solution.py") -> Submission:
    """The submission with this source, or a NoSubmission that calls it `name`."""
    with _as_none():
        source = source_of(name, data)
    return Submission(source, hashlib.sha256(source).hexdigest())


@contextmanager
def _as_none() -> Iterator[None]:
    """A file that is not acceptable is no submission."""
    try:
        yield
    except Unacceptable as reason:
        raise NoSubmission(str(reason)) from None


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
        with _as_none():
            require_regular(relative, os.fstat(descriptor), cap_bytes)
        return _read(relative, descriptor, cap_bytes)
    finally:
        os.close(descriptor)


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
