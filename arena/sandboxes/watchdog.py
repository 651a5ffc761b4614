"""Watchdog thread for limits that the kernel cannot enforce on this host. It ends a sandbox that exceeds one, as a whole."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from arena.errors import SandboxError
from arena.sandboxes import MIB

CHECK_EVERY_S = 0.25
IN_MEMORY = ("tmp", "home/agent", "dev/shm")
"""File systems that every sandbox has in memory of its own. A workspace in memory has its own bound."""
FILE_BYTES = 1024
"""What the kernel keeps of a file in memory besides its content: an inode and a name."""
PAUSE_FACTOR = 9  # a slow check is followed by a pause so many times longer: the watchdog costs a tenth of a processor at most


class Watchdog:
    """Checks a running sandbox in a thread of its own, until it is stopped or has ended the sandbox."""

    def __init__(self, end: Callable[[], None], checks: Sequence[Callable[[], str]]) -> None:
        self.finding = ""  # why the sandbox was ended; empty when it was not
        self._end = end
        self._checks = checks
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        if checks:
            self._thread.start()

    def stop(self) -> None:
        """Check no more."""
        self._over.set()
        if self._checks:
            self._thread.join()

    def _run(self) -> None:
        took_s = 0.0
        while not self._over.wait(max(CHECK_EVERY_S, PAUSE_FACTOR * took_s)):
            began_s = time.monotonic()
            try:
                self.finding = next((finding for check in self._checks if (finding := check())), "")
            except OSError as error:  # a limit that is no longer checked limits nothing
                self.finding = f"its limits could not be checked any more ({error})"
            if self.finding:
                with contextlib.suppress(SandboxError):  # not empty: the end of the sandbox's block finds and reports that too
                    self._end()
                return
            took_s = time.monotonic() - began_s


def check_memory(pid: int, bound_bytes: int) -> str:
    """Whether bwrap's process `pid` and its descendants hold more memory than they may, in words; empty when they do not.

    Counted are the processes' own pages, the files of the sandbox's file systems in memory, and open memfds. SysV memory and
    a memfd of which only a mapping is left are not seen, nor are those of a process that is not dumpable (except by root).
    """
    members = process_tree(pid)
    own = sum(_own_pages(member) for member in members) * os.sysconf("SC_PAGE_SIZE")
    inside = members - {pid}
    held = own + _file_bytes(inside) + sum(_memfds(inside).values())
    return f"its processes held {held // MIB} MiB of memory, more than {bound_bytes // MIB}" if held > bound_bytes else ""


def process_tree(pid: int) -> set[int]:
    """A process and all its descendants."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # The name in brackets may hold anything, brackets too.
            parents[int(entry.parent.name)] = int(entry.read_bytes().rpartition(b")")[2].split()[1])
    found: set[int] = set()
    fresh = {pid}
    while fresh:
        found |= fresh
        fresh = {child for child, parent in parents.items() if parent in fresh} - found
    return found


def _own_pages(pid: int) -> int:
    try:
        _, resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[:3]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(resident) - int(shared)


def _file_bytes(inside: set[int]) -> int:
    """Memory of the files in the sandbox's own file systems, deleted ones that are still open and empty ones among them."""
    for member in inside:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            found = [os.statvfs(f"/proc/{member}/root/{place}") for place in IN_MEMORY]
            content = sum((each.f_blocks - each.f_bfree) * each.f_frsize for each in found)
            return content + FILE_BYTES * sum(each.f_files - each.f_ffree for each in found)
    return 0


def _memfds(inside: set[int]) -> dict[tuple[int, int], int]:
    """Bytes of every memfd that one of these processes has open, each once."""
    sizes = {}
    for member in inside:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            for entry in Path(f"/proc/{member}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    if str(entry.readlink()).startswith("/memfd:"):
                        seen = entry.stat()
                        sizes[seen.st_dev, seen.st_ino] = seen.st_blocks * 512
    return sizes
