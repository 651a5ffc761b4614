"""What a run depended on besides its cell: this arena, its libraries, this machine."""

from __future__ import annotations

import importlib.metadata
import platform

import arena
from arena import paths
from arena.system import machine, process


def origin() -> dict[str, str | None]:
    """These facts, for a run's manifest."""
    return {
        "arena_version": arena.__version__,
        "arena_commit": commit(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "triton": version("triton"),
        "machine": machine.describe(),
    }


def commit() -> str | None:
    """The checkout's commit, with `-dirty` when it was changed since; None outside one."""
    if (root := paths.checkout()) is None:
        return None
    try:
        described = process.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"], limit_s=20
        )
    except OSError:  # no git here
        return None
    return described.stdout.decode().strip() if described.returncode == 0 else None


def version(distribution: str) -> str | None:
    """Version of an installed distribution; None without one of that name."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
