"""A file of JSON lines that is whole up to the last one, however arena ends, and never larger than it may be."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from io import FileIO

BYTES = 16 << 20
"""Then the file says so and ends: a box may ask as often as it likes."""


class Lines:
    """The file, open for appending, without a buffer."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.bytes = file.seek(0, 2)
        """Its length."""
        self._open = self.bytes <= BYTES

    def add(self, line: Mapping[str, object], last: Mapping[str, object]) -> bool:
        """Append a line, or where there is no more room for it, `last`, and nothing after that. OSError, once."""
        if not self._open:
            return False
        data = _bytes(line)
        if self.bytes + len(data) > BYTES:
            self._open = False
            data = _bytes(last)
        try:
            self._append(data)
        except OSError:
            self._open = False
            raise
        return self._open

    def _append(self, data: bytes) -> None:
        """The whole line or, as a disk may have room for a part of it, nothing. OSError."""
        if self._file.write(data) != len(data):
            self._file.truncate(self.bytes)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.bytes += len(data)


def _bytes(line: Mapping[str, object]) -> bytes:
    return json.dumps(line).encode() + b"\n"
