"""What a run depended on that is not in its cell: this arena, its libraries, this machine."""

from __future__ import annotations

import importlib.metadata
import platform

import arena
from arena import paths
from arena.system import machine, process


def origin() -> dict[str, str | None]:
    """For a run's manifest."""
    return {
        "arena_version": arena.__version__,
        "arena_commit": commit(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "triton": version("triton"),
        "machine": machine.describe(),
    }


def commit() -> str | None:
    """The commit that a checkout is at, with `-dirty` when it was changed since; None outside one."""
    if (root := paths.checkout()) is None:
        return None
    try:
        told = process.run(["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"], limit_s=20)
    except OSError:  # no git here
        return None
    return told.stdout.decode().strip() if told.returncode == 0 else None


def version(distribution: str) -> str | None:
    """Of an installed distribution; None where there is none of that name."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
