"""What was asked of the allow proxy: one JSON object a line, in the run's folder."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path

LOG_BYTES = 16 << 20
"""Then the log says so and ends: a box may ask as often as it likes."""


@dataclass
class Entry:
    """One request, filled in as it is served."""

    at: str
    host: str | None = None
    port: int | None = None
    verdict: str = "refused"
    """allowed; refused: by us; failed: allowed, but the host could not be reached; cut: nothing after this line is logged."""
    status: int = 0
    """Of the HTTP answer; 0 when there was none."""
    reason: str = ""
    address: str | None = None
    """Which of the name's addresses was reached, or tried last."""
    up_bytes: int = 0
    """From the box to the host."""
    down_bytes: int = 0
    seconds: float = 0.0


class Log:
    """The file, open, and what went wrong."""

    def __init__(self, file: FileIO) -> None:
        self.troubles: list[str] = []
        """In words for the session's record."""
        self._file = file
        self._bytes = file.seek(0, 2)
        self._open = self._bytes <= LOG_BYTES
        self._told: set[str] = set()

    def note(self, entry: Entry) -> None:
        """Append a line, while there is room; nothing after the first that cannot be written."""
        if not self._open:
            return
        line = _line(entry)
        if self._bytes + len(line) > LOG_BYTES:
            self._open = False
            line = _line(Entry(entry.at, verdict="cut", reason="the log is full: later requests are not in it"))
        try:
            self._append(line)
        except OSError as error:  # the disk is full or gone: that must not end the session whose requests these are
            self._open = False
            self.trouble("the log", f"the allow proxy's log ends early, as it cannot be written ({error.strerror})")

    def trouble(self, what: str, text: str) -> None:
        """Keep the words, once for the same `what`: a box may bring the same about as often as it likes."""
        if what not in self._told:
            self._told.add(what)
            self.troubles.append(text)

    def _append(self, line: bytes) -> None:
        """The whole line or, as a disk may have room for a part of it, nothing. OSError."""
        if self._file.write(line) != len(line):
            self._file.truncate(self._bytes)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._bytes += len(line)


@contextmanager
def opened(path: Path) -> Iterator[Log]:
    """The log at that path, appended to. OSError."""
    with FileIO(path, "a") as file:  # no buffer: what was noted is there, however arena ends
        yield Log(file)


def _line(entry: Entry) -> bytes:
    return json.dumps(asdict(entry)).encode() + b"\n"
