"""Keep every state of solution.py in an agent's workspace, with its time, and take the last one. Safe while the agent writes."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from arena.submission import NoSubmission, Submission, Torn, collect

PERIOD_S = 1.0
TORN_S = 0.02
"""Between two tries to take a file that changed while it was read."""
TORN_TRIES = 25
MAX_COUNT = 500
MAX_BYTES = 64 << 20


class Stored(NamedTuple):
    """One snapshot on disk."""

    at_s: float
    """Seconds since the session began."""
    path: Path


class Snapshots:
    """Watches `work` for the length of a `with` block and keeps each new state of solution.py in `folder`."""

    def __init__(
        self,
        work: Path,
        folder: Path,
        event: Callable[..., None],
        *,
        period_s: float = PERIOD_S,
        max_count: int = MAX_COUNT,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.start_s = time.monotonic()
        """When the times of the snapshots begin, on the monotonic clock."""
        self.count = 0
        self.trouble = ""
        """Why a state could not be kept."""
        self._work, self._folder, self._event = work, folder, event
        self._period_s, self._max_count, self._bytes_left = period_s, max_count, max_bytes
        self._signature: tuple[int, ...] = ()
        self._last = ""
        self._full = False
        self._taken: Submission | NoSubmission | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="snapshots")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.take()

    def take(self) -> Submission | NoSubmission:
        """Take the file as it is now, keep it, and watch no more; return the same at each later call."""
        if self._taken is None:
            self._stop.set()
            self._thread.join()
            self._taken = self._collect()
            if isinstance(self._taken, Submission):
                self._add(self._taken, time.monotonic() - self.start_s)
        return self._taken

    def _collect(self) -> Submission | NoSubmission:
        """The file, or why there is none. One that is being written is read again: half of it would be a worse state than any."""
        for _ in range(TORN_TRIES):
            try:
                return collect(self._work)
            except Torn as torn:
                found: NoSubmission = torn
            except NoSubmission as none:
                return none
            time.sleep(TORN_S)
        return found

    def _watch(self) -> None:
        while not self._stop.wait(self._period_s):
            self._check()

    def _check(self) -> None:
        """Keep the file if it is a new one. A file that cannot be read now may be whole at the next check."""
        at_s = time.monotonic() - self.start_s
        try:
            found = (self._work / "solution.py").lstat()
        except OSError:
            return
        # The change time cannot be set back from inside, so an unchanged file need not be read again every second.
        signature = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if self._full or signature == self._signature:
            return
        try:
            taken = collect(self._work)
        except NoSubmission:
            return
        self._signature = signature
        self._add(taken, at_s)

    def _add(self, taken: Submission, at_s: float) -> None:
        """Keep a state that differs from the last one."""
        if not self._full and taken.sha256 != self._last:
            self._last = taken.sha256
            try:
                self._keep(taken, at_s)
            except OSError as fault:  # the disk is full
                self._full, self.trouble = True, f"the snapshots end early, as they cannot be written ({fault.strerror})"

    def _keep(self, taken: Submission, at_s: float) -> None:
        if self.count >= self._max_count or len(taken.source) > self._bytes_left:
            self._full = True
            self._event("snapshots_full", count=self.count, at_s=round(at_s, 3))
            return
        (self._folder / f"{at_s * 1e3:08.0f}_{taken.sha256[:8]}.py").write_bytes(taken.source)
        self.count += 1
        self._bytes_left -= len(taken.source)


def stored(folder: Path) -> list[Stored]:
    """The snapshots in `folder`, oldest first. One torn by a crash, whose bytes do not match its name, is left out."""
    found = (Stored(int(path.stem.partition("_")[0]) / 1e3, path) for path in folder.glob("[0-9]*_????????.py"))
    return sorted(
        item for item in found if hashlib.sha256(item.path.read_bytes()).hexdigest().startswith(item.path.stem.partition("_")[2])
    )
