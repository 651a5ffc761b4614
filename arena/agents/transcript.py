"""Keep the raw output of an agent's command, up to a size, and read it for events on the way."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from arena.agents.trajectory import Trajectory
from arena.errors import SandboxError
from arena.files.text import SHOWN, plain

KEPT_BYTES = 64 << 20
"""Kept of each stream. The rest is read and dropped, so that the command never waits for room in the pipe."""
PAUSE_S = 0.005
"""Between two reads. A pipe holds 64 KiB, so a stream carries 13 MB a second, far more than an agent prints. Without the pause a
flood and its reader wake each other without end; Linux 6.18 then starved honest sandboxes on the same processor for seconds."""
LINE_BYTES = 4 << 20
"""A longer line is kept but not parsed as an event: parsing may take a hundred times its size in memory."""
TAIL_BYTES = 4096


class Transcript:
    """Reads both streams in threads of their own until they end, into `stdout.jsonl` and `stderr.log` of `folder`."""

    def __init__(
        self,
        stdout: BinaryIO,
        stderr: BinaryIO,
        folder: Path,
        trajectory: Trajectory,
        *,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self.events = 0
        """JSON objects seen, one a line."""
        self.trajectory = trajectory
        self.heard_s = time.monotonic()
        """When output last arrived, on the monotonic clock."""
        self.trouble = ""
        """Why the output could not all be kept."""
        self._last = ""
        self._line: bytes | None = b""  # the line that has not ended yet; None when it cannot be an event
        self._tail = b""
        self._closed = False
        self._lock = threading.Lock()
        self._threads = [
            self._reader(stdout, folder / "stdout.jsonl", kept_bytes, self._split),
            self._reader(stderr, folder / "stderr.log", kept_bytes, self._keep_tail),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def last(self) -> str:
        """The text of the last step or event, else the event's type, for a display: no line of JSON."""
        return plain(self.trajectory.last or self._last)

    @property
    def last_error(self) -> str:
        """The last line of standard error, for a message."""
        return plain(self._tail.strip().rpartition(b"\n")[2].decode(errors="replace"))

    def close(self, wait_s: float = 30.0) -> None:
        """Wait until both streams have ended, as they must once the sandbox is empty.

        SandboxError when they do not; then they are read no more, and what came is kept.
        """
        end_s = time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(max(0.0, end_s - time.monotonic()))
        with self._lock:
            self._closed = True
            self._end_line()
            self.trajectory.close()
        if late := [thread.name for thread in self._threads if thread.is_alive()]:
            raise SandboxError(f"the output of the sandbox did not end within {wait_s:.4g} s of its end: {', '.join(late)}")

    def _reader(self, stream: BinaryIO, path: Path, kept_bytes: int, feed: Callable[[bytes], None]) -> threading.Thread:
        file = path.open("wb", buffering=0)
        source = os.dup(stream.fileno())  # a copy: the sandbox closes its own when it ends

        def read() -> None:
            left = kept_bytes
            with file, open(source, "rb", buffering=0):
                while (piece := os.read(source, 1 << 18)) and not self._closed:
                    self.heard_s = time.monotonic()
                    if left > 0:
                        try:
                            if file.write(piece[:left]) < min(left, len(piece)):
                                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # the disk had room for a part
                            if left <= len(piece):
                                file.write(b'\n{"arena": "cut here", "kept_bytes": %d}\n' % kept_bytes)
                        except OSError as fault:  # the disk is full: read on
                            self._note(fault)
                            left = 0
                        left -= len(piece)
                    with self._lock:
                        if not self._closed:
                            feed(piece)
                    time.sleep(PAUSE_S)

        return threading.Thread(target=read, name=path.name, daemon=True)

    def _keep_tail(self, piece: bytes) -> None:
        self._tail = (self._tail + piece)[-TAIL_BYTES:]

    def _split(self, piece: bytes) -> None:
        """Find the lines that begin with a brace: only they can be events. `find` skips a flood of others at memory speed."""
        end = piece.find(b"\n")
        self._grow(piece if end < 0 else piece[:end])
        while end >= 0:
            self._end_line()
            start = piece.find(b"\n{", end)
            if start < 0:
                self._grow(piece[piece.rfind(b"\n") + 1 :])
                return
            end = piece.find(b"\n", start + 1)
            self._grow(piece[start + 1 :] if end < 0 else piece[start + 1 : end])

    def _grow(self, part: bytes) -> None:
        if self._line is not None:
            line = self._line + part
            self._line = line if not line or (line.startswith(b"{") and len(line) <= LINE_BYTES) else None

    def _end_line(self) -> None:
        line, self._line = self._line, b""
        event = _event(line) if line else None
        if line and event is not None:
            self.events += 1
            # Read once, here: a display looks four times a second, and an event may have 4 MiB.
            text = next((event[key] for key in ("text", "message", "type") if isinstance(event.get(key), str)), "")
            self._last = text[: 8 * SHOWN]
            try:
                self.trajectory.take(event)
            except OSError as fault:
                self._note(fault)

    def _note(self, fault: OSError) -> None:
        self.trouble = f"the agent's output could not all be kept ({fault.strerror})"


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):  # not JSON, not UTF-8, a number of a million digits; brackets nested a million deep
        return None
    return event if isinstance(event, dict) else None
