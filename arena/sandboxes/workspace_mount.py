"""Bounds on an agent's workspace: as root a file system of its own in memory, which nobody on the host can name.

RLIMIT_FSIZE bounds one file only. A tmpfs bounds bytes and files exactly, and shows no host path in the box's mountinfo. Its
mount has no place: it exists as long as somebody holds its descriptor, arena or the box. So nothing is left of it when both
are killed, and nothing is mounted on the host meanwhile.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from arena.errors import SandboxError
from arena.sandboxes import MIB, Limits, LostFiles, copy_tree
from arena.sandboxes.programs.launch import AT_FDCWD, MOVE_MOUNT_F_EMPTY_PATH, SYS_MOVE_MOUNT
from arena.submission import SUBMISSION_BYTES
from arena.system import process

SYS_FSOPEN, SYS_FSCONFIG, SYS_FSMOUNT = 430, 431, 432
"""System calls since Linux 5.0 have one number on all architectures."""
CLOEXEC = 1
SET_STRING, CREATE = 1, 6
NOSUID, NODEV = 2, 4
MNT_DETACH = 2
NAME = "workspace"
RESERVE_BYTES = 1 << 30
"""Left free on the disk when a workspace is brought home, but for small files: solution.py and the score must find room."""
OTHERS_BYTES = 1 << 30
"""What others may write to a watched workspace's disk meanwhile without the box being ended for it."""
MEASURED_S = 60.0
TRIES = 3
MOVED = (b": No such file or directory", b": Not a directory")
"""What `du` says, last in its line, of what was moved or removed while it looked."""

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Shelf:
    """A workspace in memory, in the place of a folder."""

    home: Path
    """The folder that it was filled from, and is brought home to."""
    mount: int
    """Descriptor of the mount."""
    limits: Limits

    @property
    def path(self) -> Path:
        """Where this process, and one that inherits the descriptor, finds it."""
        return Path(f"/proc/self/fd/{self.mount}/{NAME}")

    def bring_home(self) -> LostFiles:
        """Put what it holds into the folder, whose content is replaced; what was left out. The box must be proven empty."""
        mode = stat.S_IMODE(self.home.stat().st_mode)
        # It holds only what arena put there, and is not looked into: another box may have left its tree in it before.
        done = process.run(["rm", "-rf", "--one-file-system", "--", str(self.home)], limit_s=120)
        if done.returncode:
            raise SandboxError(f"cannot clear {self.home}: {done.stderr.decode(errors='replace').strip()}")
        self.home.mkdir(mode=mode)
        free_bytes = free(self.home)
        cap_bytes = max(0, free_bytes - RESERVE_BYTES)
        return copy_tree.copy(
            self.path,
            self.home,
            cap_bytes=min(cap_bytes, self.limits.workspace_bytes or cap_bytes),
            small_bytes=SUBMISSION_BYTES,
            reserve_bytes=min(free_bytes, RESERVE_BYTES) // 2,
        )


@contextmanager
def shelf(home: Path, limits: Limits, uid: int) -> Iterator[Shelf]:
    """The content of `home` in memory, as the property of user `uid`. OSError where the kernel cannot do it (before 5.2).

    SandboxError when the disk has no room for what it may hold at the end: an agent's whole time would be lost.
    """
    needed_bytes = RESERVE_BYTES + (limits.workspace_bytes or 0)
    if (free_bytes := free(home)) < needed_bytes:
        raise SandboxError(
            f"{free_bytes // MIB} MiB are free on the disk of {home}, and {needed_bytes // MIB} MiB are needed to keep what a "
            "workspace may hold in the end: make room, set ARENA_HOME to a folder on a larger disk, or lower workspace_mib"
        )
    mount = detached(limits)
    try:
        held = Shelf(home, mount, limits)
        held.path.mkdir(mode=0o700)
        lost = copy_tree.copy(home, held.path, owner=uid, cap_bytes=limits.workspace_bytes or 1 << 62)
        if lost.count:
            raise SandboxError(f"the files of {home} do not fit into a workspace of {said(limits)}: {lost.first[0]}")
        yield held
    finally:
        os.close(mount)


def detached(limits: Limits) -> int:
    """Descriptor of a new tmpfs that is mounted nowhere. OSError."""
    options = {"mode": "0711"}
    if limits.workspace_bytes is not None:
        options["size"] = str(limits.workspace_bytes)
    if limits.workspace_files is not None:
        options["nr_inodes"] = str(limits.workspace_files + 2)  # its root, and the folder in it
    context = _call(SYS_FSOPEN, b"tmpfs", CLOEXEC)
    try:
        for key, value in options.items():
            _call(SYS_FSCONFIG, context, SET_STRING, key.encode(), value.encode(), 0)
        _call(SYS_FSCONFIG, context, CREATE, None, None, 0)
        return _call(SYS_FSMOUNT, context, CLOEXEC, NOSUID | NODEV)
    finally:
        os.close(context)


@contextmanager
def shown(mount: int, place: Path) -> Iterator[None]:
    """For a moment, a detached mount at a folder of the host, where a process that cannot be given descriptors may bind it.

    Afterwards it is as detached as before: who holds its descriptor, or has bound it, keeps it.
    """
    _call(SYS_MOVE_MOUNT, mount, b"", AT_FDCWD, os.fsencode(place), MOVE_MOUNT_F_EMPTY_PATH)
    try:
        yield
    finally:
        taken_off(place)


def taken_off(place: Path) -> None:
    """No mount at that place any more, whether there was one or not."""
    libc.umount2(os.fsencode(place), MNT_DETACH)


def said(limits: Limits) -> str:
    """A workspace's bounds for people."""
    size = [] if limits.workspace_bytes is None else [f"{limits.workspace_bytes // MIB} MiB"]
    return ", ".join(size + ([] if limits.workspace_files is None else [f"{limits.workspace_files} files"]))


def free(folder: Path) -> int:
    """Bytes that the disk of a folder still takes."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def watched(folder: Path, limits: Limits) -> Callable[[], str]:
    """A look, from now on: whether a folder holds more than it may, in words; empty when it does not.

    It is no bound: a box may write faster than it is looked at. What has no name any more shows only as room that the disk lost.
    """
    before_bytes = free(folder)

    def look() -> str:
        if found := over(folder, limits):
            return found
        gone_bytes = before_bytes - free(folder)
        if limits.workspace_bytes is not None and gone_bytes > limits.workspace_bytes + OTHERS_BYTES:
            return f"the disk of its workspace lost {gone_bytes} bytes, and the workspace may have {limits.workspace_bytes}"
        return ""

    return look


def over(folder: Path, limits: Limits) -> str:
    """Whether the files with a name are too many or too large, or cannot be measured, in words; empty when all is well."""
    for bound, option, unit in ((limits.workspace_bytes, "-B1", "bytes"), (limits.workspace_files, "--inodes", "files")):
        if bound is None:
            continue
        used = _summed(folder, option)
        if isinstance(used, str):
            return f"its workspace could not be measured: {used}"
        if used > bound:
            return f"its workspace held {used} {unit}, more than {bound}"
    return ""


def _summed(folder: Path, option: str) -> int | str:
    """What `du` adds up, or why it cannot. It copes with trees too deep for Python and follows no link."""
    command = ["du", "-s", "-x", option, "--", str(folder)]
    for _ in range(TRIES):
        told = process.run(command, limit_s=MEASURED_S, env=os.environ | {"LC_ALL": "C"})
        if told.timed_out:
            return "a minute was not enough"
        if told.returncode == -signal.SIGABRT:  # folders were moved under it, which an assertion of its own forbids
            continue
        # A folder that its owner may not read (0300) can hold anything.
        if hidden := [line for line in told.stderr.splitlines() if told.returncode and not line.endswith(MOVED)]:
            return hidden[0].decode(errors="replace")
        if told.stdout:
            return int(told.stdout.split()[0])
    return "its folders are moved all the time"


def _call(number: int, *arguments: object) -> int:
    result = int(libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
