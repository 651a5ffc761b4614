"""Limits on an agent's workspace: as root a file system in memory that no path of the host leads to, else a check by `du`.

RLIMIT_FSIZE limits one file only. A tmpfs limits bytes and files exactly, and shows no host path in the sandbox's mountinfo.
Its mount is attached nowhere: it exists as long as arena or the sandbox holds its descriptor. So nothing is left of it when
both are killed, and nothing is mounted on the host meanwhile.
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

from arena.acceptable import MOST_BYTES
from arena.errors import SandboxError
from arena.sandboxes import MIB, Limits, LostFiles, copy_tree
from arena.sandboxes.programs.launch import AT_FDCWD, MOVE_MOUNT_F_EMPTY_PATH, SYS_MOVE_MOUNT
from arena.system import process

SYS_FSOPEN, SYS_FSCONFIG, SYS_FSMOUNT = 430, 431, 432  # system calls since Linux 5.0 have one number on all architectures
CLOEXEC = 1
SET_STRING, CREATE = 1, 6
NOSUID, NODEV = 2, 4
MNT_DETACH = 2
NAME = "workspace"
RESERVE_BYTES = 1 << 30
"""Left free on the disk when a workspace is copied back, except for small files: solution.py and the score must find room."""
OTHERS_BYTES = 1 << 30
"""Other programs may write so much to a watched workspace's disk meanwhile; the sandbox is not ended for it."""
MOVED = (b": No such file or directory", b": Not a directory")
"""How a line of `du` ends for a file that was moved or removed while it looked."""

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class WorkspaceMount:
    """A workspace in memory, in the place of a folder."""

    folder: Path  # the folder that it was filled from, and is copied back to
    fd: int  # descriptor of the mount
    limits: Limits
    uid: int  # the sandbox's user

    @property
    def path(self) -> Path:
        """Where this process, and one that inherits the descriptor, finds it."""
        return Path(f"/proc/self/fd/{self.fd}/{NAME}")

    def copy_back(self) -> LostFiles:
        """Replace the folder's content with the workspace's; return what was left out. The sandbox must be proven empty.

        All of it stays the sandbox's user's. Git runs the programs that `.git/config` names (core.fsmonitor) for any person who
        asks for a status, but only in a repository of that person.
        """
        mode = stat.S_IMODE(self.folder.stat().st_mode)
        # It is removed as it is, and Python does not walk it: another sandbox may have left its tree in it before.
        try:
            self.folder.rmdir()
        except OSError:
            done = process.run(["rm", "-rf", "--one-file-system", "--", str(self.folder)], limit_s=120)
            if done.returncode:
                raise SandboxError(f"cannot clear {self.folder}: {done.stderr.decode(errors='replace').strip()}") from None
        self.folder.mkdir(mode=mode)
        free_bytes = free_space(self.folder)
        cap_bytes = max(0, free_bytes - RESERVE_BYTES)
        return copy_tree.copy(
            self.path,
            self.folder,
            owner=self.uid,
            cap_bytes=min(cap_bytes, self.limits.workspace_bytes or cap_bytes),
            small_bytes=MOST_BYTES,
            reserve_bytes=min(free_bytes, RESERVE_BYTES) // 2,
        )


@contextmanager
def workspace_in_memory(folder: Path, limits: Limits, uid: int) -> Iterator[WorkspaceMount]:
    """The content of `folder` in memory, owned by user `uid`. OSError where the kernel cannot do it (before 5.2).

    SandboxError when the disk has no room for what it may hold at the end: an agent's whole time would be lost.
    """
    needed_bytes = RESERVE_BYTES + (limits.workspace_bytes or 0)
    if (free_bytes := free_space(folder)) < needed_bytes:
        raise SandboxError(
            f"{free_bytes // MIB} MiB are free on the disk of {folder}, and {needed_bytes // MIB} MiB are needed to keep what a "
            "workspace may hold in the end: make room, set ARENA_HOME to a folder on a larger disk, or lower workspace_mib"
        )
    mount = detached_tmpfs(limits)
    try:
        held = WorkspaceMount(folder, mount, limits, uid)
        held.path.mkdir(mode=0o700)
        lost = copy_tree.copy(folder, held.path, owner=uid, cap_bytes=limits.workspace_bytes or 1 << 62)
        if lost.count:
            raise SandboxError(f"the files of {folder} do not fit into a workspace of {describe_bounds(limits)}: {lost.first[0]}")
        yield held
    finally:
        os.close(mount)


def detached_tmpfs(limits: Limits) -> int:
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
def attached(mount: int, place: Path) -> Iterator[None]:
    """Attach a detached mount to a folder of the host for a moment, for a process that cannot be given descriptors to bind.

    Afterwards it is as detached as before: every process that holds its descriptor, or has bound it, keeps it.
    """
    _call(SYS_MOVE_MOUNT, mount, b"", AT_FDCWD, os.fsencode(place), MOVE_MOUNT_F_EMPTY_PATH)
    try:
        yield
    finally:
        detach(place)


def detach(place: Path) -> None:
    """Detach the mount at that place, if there is one."""
    libc.umount2(os.fsencode(place), MNT_DETACH)


def describe_bounds(limits: Limits) -> str:
    """A workspace's limits in words; empty without any."""
    size = [] if limits.workspace_bytes is None else [f"{limits.workspace_bytes // MIB} MiB"]
    return ", ".join(size + ([] if limits.workspace_files is None else [f"{limits.workspace_files} files"]))


def free_space(folder: Path) -> int:
    """Free bytes on the disk of a folder."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def workspace_checker(folder: Path, limits: Limits) -> Callable[[], str]:
    """A check whether a folder holds more than it may, in words; empty when it does not.

    It is no hard limit: a sandbox may write faster than it is checked. A deleted file that is still open shows only as space
    that the disk has lost since now.
    """
    before_bytes = free_space(folder)

    def check() -> str:
        if found := check_workspace(folder, limits):
            return found
        gone_bytes = before_bytes - free_space(folder)
        if limits.workspace_bytes is not None and gone_bytes > limits.workspace_bytes + OTHERS_BYTES:
            return f"the disk of its workspace lost {gone_bytes} bytes, and the workspace may have {limits.workspace_bytes}"
        return ""

    return check


def check_workspace(folder: Path, limits: Limits) -> str:
    """Whether a folder's named files are too many or too large, or cannot be measured, in words; empty when all is well."""
    for bound, option, unit in ((limits.workspace_bytes, "-B1", "bytes"), (limits.workspace_files, "--inodes", "files")):
        if bound is None:
            continue
        used = _disk_usage(folder, option)
        if isinstance(used, str):
            return f"its workspace could not be measured: {used}"
        if used > bound:
            return f"its workspace held {used} {unit}, more than {bound}"
    return ""


def _disk_usage(folder: Path, option: str) -> int | str:
    """The sum of `du`, or why there is none. `du` copes with trees too deep for Python and follows no link."""
    command = ["du", "-s", "-x", option, "--", str(folder)]
    for _ in range(3):
        done = process.run(command, limit_s=60, env=os.environ | {"LC_ALL": "C"})
        if done.timed_out:
            return "a minute was not enough"
        if done.returncode == -signal.SIGABRT:  # folders were moved under it, which an assertion of its own forbids
            continue
        # A folder that its owner may not read (0300) can hold anything.
        if hidden := [line for line in done.stderr.splitlines() if done.returncode and not line.endswith(MOVED)]:
            return hidden[0].decode(errors="replace")
        if done.stdout:
            return int(done.stdout.split()[0])
    return "its folders are moved all the time"


def _call(number: int, *arguments: object) -> int:
    if (result := int(libc.syscall(number, *arguments))) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
