"""Where control groups can be made on this machine: the hierarchies of version 1, version 2, or some of each."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

CONTROLLERS = ("memory", "pids", "cpu")


class Place(NamedTuple):
    """A group in one hierarchy."""

    version: Literal[1, 2]
    folder: Path


def places(groups: str, mounts: str) -> dict[str, Place]:
    """Where this process stands, by controller, from the texts of /proc/self/cgroup and mountinfo; '' is version 2."""
    own: dict[str, str] = {}
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        own |= dict.fromkeys(names.split(","), path)
    found: dict[str, Place] = {}
    for line in mounts.splitlines():
        left, right = line.split(" - ", 1)
        root, point = left.split(" ")[3:5]
        kind, _, options = right.split(" ", 2)
        offered = {"cgroup2": {""}, "cgroup": set(options.split(",")) & set(CONTROLLERS)}.get(kind, set())
        for name in offered & own.keys():
            # In a container the mount may show only a part of the hierarchy, and not ours.
            if Path(own[name]).is_relative_to(root):
                folder = Path(point, Path(own[name]).relative_to(root))
                found.setdefault(name, Place(2 if kind == "cgroup2" else 1, folder))
    return found


def here() -> dict[str, Place]:
    """`places` of this process, now."""
    return places(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())


def subtree(own: Path) -> Path | None:
    """The nearest group of version 2, from ours upwards, below which groups with memory and pids limits can be made.

    Our own seldom can: a group that holds processes hands no controllers on. A systemd user may use `app.slice`, root every
    slice. Whatever is above it still holds.
    """
    for folder in (own, *own.parents):
        try:
            offered = set((folder / "cgroup.controllers").read_text().split()) & set(CONTROLLERS)
            if not {"memory", "pids"} <= offered:
                continue
            if missing := offered - set(handed_on(folder)):
                hand_on(folder, missing)
        except OSError:  # above the mount; not ours to write; it holds processes
            continue
        if os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK):
            return folder
    return None


def handed_on(folder: Path) -> list[str]:
    """Controllers that a group's children have."""
    return sorted(set((folder / "cgroup.subtree_control").read_text().split()) & set(CONTROLLERS))


def hand_on(folder: Path, controllers: Iterable[str]) -> None:
    """Let a group's children have these. OSError."""
    (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(controllers)))


def machine_bytes() -> int:
    """Memory of this machine, or of the container that arena runs in."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    found = [int(lines["MemTotal"].split()[0]) << 10]
    own = here()
    for name, file in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
        for folder in (own[name].folder, *own[name].folder.parents) if name in own else ():
            if (folder / file).exists() and (text := (folder / file).read_text().strip()) != "max":
                found.append(int(text))
    return min(found)
