"""Temporary folders in $TMPDIR, removed with their block. Their names name their process: those of a killed arena are swept."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arena.system import process

PREFIX = "arena-"
MARKED = re.compile(rf"{PREFIX}(\d+-\d+-\d+)-\w+")
REMOVE_S = 120


@contextmanager
def folder() -> Iterator[Path]:
    """A new folder that no other user may enter. The folders of killed arenas are removed first."""
    for left in abandoned():
        _remove(left)
    made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{owner()}-"))
    try:
        yield made
    finally:
        _remove(made)


def abandoned() -> Iterator[Path]:
    """This user's folders whose arena has ended."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if mark := MARKED.fullmatch(path.name):
            with contextlib.suppress(FileNotFoundError):  # swept by another process meanwhile
                found = path.lstat()  # any user may put a link or a folder of that name here
                if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not alive(mark[1]):
                    yield path


def owner(pid: int | None = None) -> str:
    """A name that no other process of this machine ever has: pid namespace, pid and start time; of this process by default."""
    number = os.getpid() if pid is None else pid
    started = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{Path('/proc/self/ns/pid').stat().st_ino}-{number}-{started}"


def alive(name: str) -> bool:
    """Whether the process that `owner` named so still runs. One of another pid namespace counts as running."""
    space, pid, _ = name.split("-")
    if space != owner().split("-")[0]:
        return True
    try:
        return owner(int(pid)) == name
    except (FileNotFoundError, ProcessLookupError):
        return False


def _remove(path: Path) -> None:
    """Remove the folder. A part that cannot be removed, such as a mount below it, stays for the next sweep.

    By `rm`: Python's own removal fails on trees as deep as an agent can make them, and would go on into mounts.
    """
    words = ["rm", "-rf", "--one-file-system", "--", str(path)]
    if process.run(words, limit_s=REMOVE_S).returncode and os.geteuid() != 0:  # a folder in it that its own user may not enter
        process.run(["chmod", "-R", "u+rwX", "--", str(path)], limit_s=REMOVE_S)
        process.run(words, limit_s=REMOVE_S)
