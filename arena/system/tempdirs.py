"""Folders for the length of a block, in $TMPDIR. Their names tell whose they are, so that a killed arena's are swept."""

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
    """A new folder that nobody else may enter. What a killed arena has left of its own is taken away first."""
    for left in abandoned():
        _remove(left)
    made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{owner()}-"))
    try:
        yield made
    finally:
        _remove(made)


def abandoned() -> Iterator[Path]:
    """Folders of this user whose arena has ended."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if mark := MARKED.fullmatch(path.name):
            with contextlib.suppress(FileNotFoundError):  # swept by somebody else meanwhile
                found = path.lstat()  # anybody may put a link or a folder of that name here
                if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not alive(mark[1]):
                    yield path


def owner(pid: int | None = None) -> str:
    """A name for this process that no other will ever have on this machine: its pid namespace, number and start time."""
    number = os.getpid() if pid is None else pid
    started = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{Path('/proc/self/ns/pid').stat().st_ino}-{number}-{started}"


def alive(name: str) -> bool:
    """Whether the process that `owner` named so is still there. One of another pid namespace may be."""
    space, pid, _ = name.split("-")
    if space != owner().split("-")[0]:
        return True
    try:
        return owner(int(pid)) == name
    except (FileNotFoundError, ProcessLookupError):
        return False


def _remove(path: Path) -> None:
    """Take the folder away. What resists, such as a mount of somebody else's below it, stays for the next sweep.

    Not Python's own: that fails on trees as deep as an agent can make them, and would go on into what is mounted.
    """
    words = ["rm", "-rf", "--one-file-system", "--", str(path)]
    if process.run(words, limit_s=REMOVE_S).returncode and os.geteuid() != 0:  # a folder in it that its own user may not enter
        process.run(["chmod", "-R", "u+rwX", "--", str(path)], limit_s=REMOVE_S)
        process.run(words, limit_s=REMOVE_S)
