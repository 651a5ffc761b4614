"""Copying a folder that somebody hostile has filled: no link is followed, no tree is too deep, holes stay holes."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from arena.sandboxes import LostFiles

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLAIN_MODE = 0o777
"""No set-user-id bit survives: the copy belongs to another user."""
PIECE_BYTES = 1 << 30
NAMED = 100
"""What is left out is named up to so many; it is all counted."""
PATH_CHARACTERS = 400
"""And each path is shown with so many: 1,500 sockets below 1,500 folders with long names were 587 MiB of text."""


class Entry(NamedTuple):
    """One name of a folder, ordered so that what is large comes last and is what a full disk leaves out."""

    is_folder: bool
    size_bytes: int
    name: str
    status: os.stat_result


@dataclass
class Level:
    """A folder on the way from the top to where the copying is."""

    name: str
    status: os.stat_result
    left: list[Entry]
    """What is still to be copied, the next one last."""


def copy(
    source: Path, target: Path, *, owner: int | None = None, cap_bytes: int, small_bytes: int = 0, reserve_bytes: int = 0
) -> LostFiles:
    """Copy all of `source` into the empty folder `target`, for user `owner`; what was left out.

    Nobody may write in either meanwhile. At most `cap_bytes` are written, and `reserve_bytes` more of files that are no larger
    than `small_bytes`; holes cost nothing, each name of a hard link counts.
    """
    return _Copy(owner, cap_bytes, small_bytes, reserve_bytes).run(source, target)


class _Copy:
    """One copying. Two descriptors are open at a time, however deep the tree is: `..` leads back."""

    def __init__(self, owner: int | None, cap_bytes: int, small_bytes: int, reserve_bytes: int) -> None:
        self.owner = owner
        self.left_bytes = cap_bytes
        self.small_bytes = small_bytes
        self.reserve_bytes = reserve_bytes
        self.lost = 0
        self.named: list[str] = []
        self.levels: list[Level] = []
        self.here = self.there = -1

    def run(self, source: Path, target: Path) -> LostFiles:
        """Copy."""
        try:
            self.here, self.there = os.open(source, FOLDER), os.open(target, FOLDER)
            self.enter("")
            while self.levels:
                if self.levels[-1].left:
                    self.take(self.levels[-1].left.pop())
                else:
                    self.leave()
        finally:
            self.go(-1, -1)
        return LostFiles(self.lost, tuple(self.named))

    def go(self, here: int, there: int) -> None:
        """Stand in these folders instead."""
        for held in (self.here, self.there):
            if held >= 0:
                os.close(held)
        self.here, self.there = here, there

    def enter(self, name: str) -> None:
        """The folder that both descriptors show is next."""
        with os.scandir(self.here) as entries:
            found = [(entry.name, entry.stat(follow_symlinks=False)) for entry in entries]
        left = [Entry(stat.S_ISDIR(status.st_mode), status.st_size, name, status) for name, status in found]
        self.levels.append(Level(name, os.fstat(self.here), sorted(left, reverse=True)))

    def leave(self) -> None:
        """Finish a folder and go up."""
        level, done = self.levels.pop(), os.dup(self.there)
        try:
            if self.levels:
                self.go(os.open("..", FOLDER, dir_fd=self.here), os.open("..", FOLDER, dir_fd=self.there))
            self.finish(done, level.status)  # only now: its mode may forbid going up
        finally:
            os.close(done)

    def take(self, entry: Entry) -> None:
        """Copy one name, or write down why not."""
        name, kind = entry.name, stat.S_IFMT(entry.status.st_mode)
        try:
            if kind == stat.S_IFDIR:
                os.mkdir(name, 0o700, dir_fd=self.there)
                self.go(os.open(name, FOLDER, dir_fd=self.here), os.open(name, FOLDER, dir_fd=self.there))
                self.enter(name)
            elif kind == stat.S_IFREG:
                self.file(name, entry.status)
            elif kind == stat.S_IFLNK:
                os.symlink(os.readlink(name, dir_fd=self.here), name, dir_fd=self.there)
            elif kind == stat.S_IFIFO:
                os.mkfifo(name, entry.status.st_mode & PLAIN_MODE, dir_fd=self.there)
            else:
                self.lose(name, "a socket or a device")
        except OSError as error:
            self.lose(name, str(error.strerror))

    def file(self, name: str, status: os.stat_result) -> None:
        """Copy a regular file, or leave no trace of it."""
        ours = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.here)
        try:
            copied = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self.there)
            try:
                self.data(ours, copied, status.st_size)
                self.finish(copied, status)
            except OSError:
                os.unlink(name, dir_fd=self.there)  # half a file would be taken for a whole one
                raise
            finally:
                os.close(copied)
        finally:
            os.close(ours)

    def data(self, ours: int, copied: int, size_bytes: int) -> None:
        """Copy what is written in a file; a sparse file of 2 GiB may hold a single byte."""
        os.truncate(copied, size_bytes)
        at = 0
        while at < size_bytes:
            try:
                at = os.lseek(ours, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                    return
                raise
            end = os.lseek(ours, at, os.SEEK_HOLE)
            self.pay(end - at, size_bytes <= self.small_bytes)
            os.lseek(copied, at, os.SEEK_SET)
            while at < end:
                at += os.sendfile(copied, ours, at, min(end - at, PIECE_BYTES))

    def pay(self, written_bytes: int, small: bool) -> None:
        """Take so much off what may be written, or off the reserve when it is for a small file. OSError."""
        if written_bytes <= self.left_bytes:
            self.left_bytes -= written_bytes
        elif small and written_bytes <= self.reserve_bytes:
            self.reserve_bytes -= written_bytes
        else:
            raise OSError(errno.ENOSPC, "more than what may be kept")

    def finish(self, copied: int, status: os.stat_result) -> None:
        """Owner, mode and times of a file or folder."""
        if self.owner is not None:
            os.fchown(copied, self.owner, self.owner)
        os.fchmod(copied, status.st_mode & PLAIN_MODE)
        os.utime(copied, ns=(status.st_atime_ns, status.st_mtime_ns))

    def lose(self, name: str, why: str) -> None:
        """Count what was left out, and remember the first by their paths, the middle of a long one left out."""
        self.lost += 1
        if len(self.named) < NAMED:
            path = "/".join([*(level.name for level in self.levels[1:]), name])
            half = PATH_CHARACTERS // 2
            shown = path if len(path) <= PATH_CHARACTERS else f"{path[:half]} ... {path[-half:]}"
            self.named.append(f"{shown} ({why})")
