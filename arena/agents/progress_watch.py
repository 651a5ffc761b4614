"""Notice an agent that makes no progress: many answers of its model in a row, and nothing in its workspace changes."""

from __future__ import annotations

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
    """Paths, sizes and times of everything in the workspace; None when that is too much, or not to be read."""
    try:
        found = list(itertools.islice(_entries(workspace), LISTED + 1))
    except OSError:
        return None
    return frozenset(found) if len(found) <= LISTED else None


def _entries(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Every entry below a folder, without following links. OSError: the agent locks or removes folders meanwhile."""
    folders = [os.fspath(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                yield entry.path, status.st_size, status.st_mtime_ns
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
