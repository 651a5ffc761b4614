"""A file of JSON lines with a size limit: every line is complete, however arena ends."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from io import FileIO

BYTES = 16 << 20
"""At this size the file ends, and its last line states that: a sandbox may cause any number of lines."""


class JsonLines:
    """The file, open for appending, without a buffer."""

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self.bytes = file.seek(0, 2)
        """Its length."""
        self._open = self.bytes <= BYTES

    def add(self, line: Mapping[str, object], last: Mapping[str, object]) -> bool:
        """Append a line. When there is no more room, append `last` instead, and nothing after it. OSError, once."""
        if not self._open:
            return False
        data = _bytes(line)
        if self.bytes + len(data) > BYTES:
            self._open = False
            data = _bytes(last)
        try:
            if self._file.write(data) != len(data):  # a full disk had room for a part: all or nothing
                self._file.truncate(self.bytes)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self._open = False
            raise
        self.bytes += len(data)
        return self._open


def _bytes(line: Mapping[str, object]) -> bytes:
    return json.dumps(line).encode() + b"\n"
