"""Copy a folder that an untrusted agent has filled: no link is followed, no tree is too deep, holes stay holes."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from arena.sandboxes import LostFiles

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLAIN_MODE = 0o777  # no set-user-id bit survives: the copy belongs to another user
PIECE_BYTES = 1 << 30
NAMED = 100  # at most so many lost files are named; all are counted
PATH_CHARACTERS = 400
"""At most so many characters of a path are shown: 1,500 sockets below 1,500 folders with long names were 587 MiB of text."""


class Entry(NamedTuple):
    """One name of a folder. Large files sort last, so that a full disk leaves them out."""

    is_folder: bool
    size_bytes: int
    name: str
    status: os.stat_result


@dataclass
class Level:
    """A folder on the path from the top to the current one."""

    name: str
    status: os.stat_result
    left: list[Entry]  # entries still to be copied, the next one last


def copy(
    source: Path, target: Path, *, owner: int | None = None, cap_bytes: int, small_bytes: int = 0, reserve_bytes: int = 0
) -> LostFiles:
    """Copy all of `source` into the empty folder `target`, for user `owner`; return what was left out.

    No process may write in either meanwhile. At most `cap_bytes` are written, and `reserve_bytes` more of files no larger than
    `small_bytes`; holes cost nothing, each name of a hard link counts.
    """
    return _Copy(owner, cap_bytes, small_bytes, reserve_bytes).run(source, target)


@dataclass
class _Copy:
    """One copy in progress. Two descriptors are open at a time, however deep the tree is: `..` leads back."""

    owner: int | None
    left_bytes: int
    small_bytes: int
    reserve_bytes: int
    lost: int = 0
    named: list[str] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    source_fd: int = -1
    target_fd: int = -1

    def run(self, source: Path, target: Path) -> LostFiles:
        """Copy folder by folder."""
        try:
            self.source_fd, self.target_fd = os.open(source, FOLDER), os.open(target, FOLDER)
            self.enter("")
            while self.levels:
                if self.levels[-1].left:
                    self.copy_entry(self.levels[-1].left.pop())
                else:
                    self.leave()
        finally:
            self.move_to(-1, -1)
        return LostFiles(self.lost, tuple(self.named))

    def move_to(self, source_fd: int, target_fd: int) -> None:
        """Make these the current folders."""
        for held in (self.source_fd, self.target_fd):
            if held >= 0:
                os.close(held)
        self.source_fd, self.target_fd = source_fd, target_fd

    def enter(self, name: str) -> None:
        """Start to copy the current folder."""
        with os.scandir(self.source_fd) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
        left = [Entry(stat.S_ISDIR(status.st_mode), status.st_size, name, status) for name, status in found]
        self.levels.append(Level(name, os.fstat(self.source_fd), sorted(left, reverse=True)))

    def leave(self) -> None:
        """Finish the current folder and go up."""
        level, done = self.levels.pop(), os.dup(self.target_fd)
        try:
            if self.levels:
                self.move_to(os.open("..", FOLDER, dir_fd=self.source_fd), os.open("..", FOLDER, dir_fd=self.target_fd))
            self.copy_metadata(done, level.status)  # only now: its mode may forbid going up
        finally:
            os.close(done)

    def copy_entry(self, entry: Entry) -> None:
        """Copy one entry, or record why not."""
        name, kind = entry.name, stat.S_IFMT(entry.status.st_mode)
        try:
            if kind == stat.S_IFDIR:
                os.mkdir(name, 0o700, dir_fd=self.target_fd)
                self.move_to(os.open(name, FOLDER, dir_fd=self.source_fd), os.open(name, FOLDER, dir_fd=self.target_fd))
                self.enter(name)
            elif kind == stat.S_IFREG:
                self.copy_file(name, entry.status)
            elif kind == stat.S_IFLNK:
                os.symlink(os.readlink(name, dir_fd=self.source_fd), name, dir_fd=self.target_fd)
            elif kind == stat.S_IFIFO:
                os.mkfifo(name, entry.status.st_mode & PLAIN_MODE, dir_fd=self.target_fd)
            else:
                self.record_lost(name, "a socket or a device")
        except OSError as error:
            self.record_lost(name, str(error.strerror))

    def copy_file(self, name: str, status: os.stat_result) -> None:
        """Copy a regular file whole, or not at all."""
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.source_fd)
        try:
            target = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self.target_fd)
            try:
                self.copy_data(source, target, status.st_size)
                self.copy_metadata(target, status)
            except OSError:
                os.unlink(name, dir_fd=self.target_fd)  # half a file would look like a whole one
                raise
            finally:
                os.close(target)
        finally:
            os.close(source)

    def copy_data(self, source: int, target: int, size_bytes: int) -> None:
        """Copy a file's data without its holes; a sparse file of 2 GiB may hold a single byte."""
        os.truncate(target, size_bytes)
        at = 0
        while at < size_bytes:
            try:
                at = os.lseek(source, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                    return
                raise
            end = os.lseek(source, at, os.SEEK_HOLE)
            self.charge(end - at, size_bytes <= self.small_bytes)
            os.lseek(target, at, os.SEEK_SET)
            while at < end:
                at += os.sendfile(target, source, at, min(end - at, PIECE_BYTES))

    def charge(self, written_bytes: int, small: bool) -> None:
        """Subtract from the bytes that may be written, or for a small file from the reserve. OSError when neither is enough."""
        if written_bytes <= self.left_bytes:
            self.left_bytes -= written_bytes
        elif small and written_bytes <= self.reserve_bytes:
            self.reserve_bytes -= written_bytes
        else:
            raise OSError(errno.ENOSPC, "more than what may be kept")

    def copy_metadata(self, target: int, status: os.stat_result) -> None:
        """Set owner, mode and times of a file or folder."""
        if self.owner is not None:
            os.fchown(target, self.owner, self.owner)
        os.fchmod(target, status.st_mode & PLAIN_MODE)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))

    def record_lost(self, name: str, why: str) -> None:
        """Count a lost file and keep the path of the first ones, shortened in the middle."""
        self.lost += 1
        if len(self.named) < NAMED:
            path = "/".join([*(level.name for level in self.levels[1:]), name])
            half = PATH_CHARACTERS // 2
            shown = path if len(path) <= PATH_CHARACTERS else f"{path[:half]} ... {path[-half:]}"
            self.named.append(f"{shown} ({why})")
