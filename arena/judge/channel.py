"""What connects the judge to one worker: a socket for orders, a pipe for replies, and the worker's streams."""

from __future__ import annotations

import os
import re
import socket
import threading
from contextlib import suppress
from itertools import dropwhile
from typing import BinaryIO

HEAD_BYTES, TAIL_BYTES = 1 << 20, 4 << 20
"""How much the judge keeps of the beginning, and at least of the end, of each of the worker's streams. It reads and drops what
lies between, so that the worker never blocks."""
RECENT_BYTES, RECENT_LINES, LINE_CHARACTERS = 1 << 20, 8, 300
"""What is looked at to find an error in a stream: so much of its end, so many lines where no exception is, so much of a line."""
TRACEBACK = "Traceback (most recent call last):"


class Log:
    """The beginning and the end of a stream, read by a thread until it ends."""

    def __init__(self, stream: BinaryIO) -> None:
        self._lock = threading.Lock()
        self._head, self._tail = bytearray(), bytearray()
        self.lost_bytes = 0
        """Read and not kept."""
        self._fd = os.dup(stream.fileno())  # a copy: the sandbox closes its own when it ends
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        with suppress(OSError):  # pages of a file that is no longer there, spliced into the pipe
            while chunk := os.read(self._fd, 1 << 16):
                with self._lock:
                    self._keep(chunk)
        os.close(self._fd)

    def _keep(self, chunk: bytes) -> None:
        room = HEAD_BYTES - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) >= 2 * TAIL_BYTES:  # not at every chunk: what stays is moved
            self.lost_bytes += len(self._tail) - TAIL_BYTES
            del self._tail[:-TAIL_BYTES]

    def last_error(self, wanted: re.Pattern[str]) -> str:
        """Up to three lines, made safe to print: the last exception's first, the first that shows what is `wanted`, the last.

        A long message may begin with what failed and end with advice. Where no exception is, some last lines are looked through.
        """
        lines = [line for line in self._kept()[-RECENT_BYTES:].decode("utf-8", "replace").splitlines() if line.strip()]
        shown = lines[-RECENT_LINES:]
        if TRACEBACK in lines:
            after = lines[len(lines) - lines[::-1].index(TRACEBACK) :]
            shown = [*dropwhile(lambda line: line[0].isspace(), after)] or shown  # without the frames
        found = [line[max(0, match.end() - LINE_CHARACTERS) :] for line in shown if (match := wanted.search(line))]
        told = [*shown[: TRACEBACK in lines], *found[:1], *shown[-1:]]
        short = dict.fromkeys("".join(c if c.isprintable() else "?" for c in line.strip())[:LINE_CHARACTERS] for line in told)
        return " … ".join(short)

    def text(self) -> bytes:
        """All that was kept, with a line in the place of what was not."""
        self._thread.join(timeout=1)
        return self._kept()

    def _kept(self) -> bytes:
        with self._lock:
            lost = f"\n[{self.lost_bytes} bytes are left out here]\n".encode() if self.lost_bytes else b""
            return bytes(self._head) + lost + self._tail


class Channel:
    """Orders to a worker over a socket, replies from it over a pipe. Descriptors go to the worker only.

    A socket carries descriptors both ways, and the judge would be the last to close one that came with a reply. For a TCP socket
    with unsent data that takes as long as its SO_LINGER says: the judge hung for 200 s. So the judge's end of the socket is shut
    for reading before the worker starts, and the kernel refuses whatever a process sends there. A pipe carries bytes alone.
    """

    def __init__(self) -> None:
        self.orders, self._worker_orders = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.orders.shutdown(socket.SHUT_RD)
        self.replies, self._worker_replies = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.replies, False)

    @property
    def worker_fds(self) -> tuple[int, int]:
        """The worker's ends: orders, replies."""
        return self._worker_orders.fileno(), self._worker_replies

    def release_worker_fds(self) -> None:
        """Close the worker's ends here, once it has them: the judge is to see their end."""
        self._worker_orders.close()
        if self._worker_replies >= 0:
            os.close(self._worker_replies)
            self._worker_replies = -1

    def close(self, *, lock_held: bool = False) -> None:
        """Close both ends. The pipe stays open where a process may hold its lock (`lock_held`), which would hold up the close."""
        self.release_worker_fds()
        self.orders.close()
        if not lock_held:
            os.close(self.replies)
