"""Notice an agent that makes no progress: many answers of its model in a row, and nothing in its workspace changes."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

ANSWERS = 200
"""Good answers in a row without a change. A session of 45 minutes with a real model has about as many in all; a loop against a
fast server has them within seconds."""
EVERY = 25
"""Answers between two looks at the workspace."""
LISTED = 10_000
"""Entries compared at most: an agent may make millions. More than that count as a change, so they end nothing."""

DEEPEST = 50
"""Levels of folders; a deeper workspace is taken like one that is too large."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
"""An agent may put a link to the host into a folder's place at any moment."""

Seen = frozenset[tuple[str, int, int]] | None


class ProgressWatch:
    """What the workspace looked like, and how many answers ago it last changed."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._seen = _seen(workspace)
        self._changed_at = self._looked_at = 0
        """The number of answers at the last look that found a change, and at the last look."""

    def looping(self, answers: int) -> bool:
        """Whether that many good answers are too many for the last change. Looks at the workspace when it is time."""
        if answers - self._looked_at < EVERY:
            return False
        self._looked_at, seen = answers, _seen(self._workspace)
        if seen is None or seen != self._seen:
            self._seen, self._changed_at = seen, answers
        return answers - self._changed_at >= ANSWERS


def _seen(workspace: Path) -> Seen:
    """Paths, sizes and times of everything in the workspace; None when that is too much, too deep, or not to be read."""
    try:
        folder = os.open(workspace, FOLDER)
        try:
            found = list(itertools.islice(_entries(folder, "", DEEPEST), LISTED + 1))
        finally:
            os.close(folder)
    except OSError:
        return None
    return frozenset(found) if len(found) <= LISTED else None


def _entries(folder: int, path: str, levels: int) -> Iterator[tuple[str, int, int]]:
    """Every entry below an open folder. OSError: too many levels, or the agent locks, removes or replaces folders meanwhile."""
    if not levels:
        raise OSError(errno.ELOOP, "too many levels", path)
    with os.scandir(folder) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            yield f"{path}/{entry.name}", status.st_size, status.st_mtime_ns
            if entry.is_dir(follow_symlinks=False):
                child = os.open(entry.name, FOLDER, dir_fd=folder)
                try:
                    yield from _entries(child, f"{path}/{entry.name}", levels - 1)
                finally:
                    os.close(child)
