"""Temporary folders in $TMPDIR, removed with their block. Their names name their process: those of a killed arena are swept."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arena.system import process

PREFIX = "arena-"
MARKED = re.compile(rf"{PREFIX}(\d+-\d+-\d+)-\w+")
REMOVE_S = 1800
SWEEP_S, END_S = 1.0, 10.0
"""How long arena waits for the removal of a folder, at the start of another one and at the end of its own block. It takes
milliseconds, but an agent can make a tree that takes minutes."""


@contextmanager
def folder() -> Iterator[Path]:
    """A new folder that no other user may enter. The folders of killed arenas are removed first, as far as that is quick."""
    for left in abandoned():
        _remove(left, SWEEP_S)
    made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{owner()}-"))
    try:
        yield made
    finally:
        _remove(made, END_S)


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
    started = _after_its_name(number)[19]
    return f"{Path('/proc/self/ns/pid').stat().st_ino}-{number}-{started}"


def _after_its_name(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on. The name before them may hold any bytes."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()


def alive(name: str) -> bool:
    """Whether the process that `owner` named so still runs. One of another pid namespace counts as running."""
    space, pid, _ = name.split("-")
    if space != owner().split("-")[0]:
        return True
    try:
        return owner(int(pid)) == name
    except (FileNotFoundError, ProcessLookupError):
        return False


def ended(name: str) -> bool:
    """Whether the process that `owner` named so has ended, as a zombie has. One of another pid namespace counts as ended."""
    space, pid, _ = name.split("-")
    return space != owner().split("-")[0] or not alive(name) or _state(int(pid)) in ("Z", "X", "")


def _state(pid: int) -> str:
    try:
        return _after_its_name(pid)[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


_removals: dict[Path, threading.Thread] = {}
"""Removals under way in this process."""


def _remove(path: Path, wait_s: float) -> None:
    """Remove the folder, and wait for that at most so long: a thread goes on with it.

    When arena ends meanwhile, its `rm` goes on. A part that cannot be removed, such as a mount below it, stays for the next
    sweep.
    """
    waiting = path in _removals
    thread = _removals.setdefault(path, threading.Thread(target=_run_removal, args=(path,), name=f"rm {path}", daemon=True))
    if not waiting:
        thread.start()
        thread.join(wait_s)


def _run_removal(path: Path) -> None:
    """By `rm`: Python's own removal fails on trees as deep as an agent can make them, and would go on into mounts."""
    words = ["rm", "-rf", "--one-file-system", "--", str(path)]
    try:
        if process.run(words, limit_s=REMOVE_S).returncode and os.geteuid() != 0:  # a folder that its own user may not enter
            process.run(["chmod", "-R", "u+rwX", "--", str(path)], limit_s=REMOVE_S)
            process.run(words, limit_s=REMOVE_S)
    finally:
        del _removals[path]  # a later sweep tries again
