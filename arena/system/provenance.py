"""What a run depended on besides its cell: this arena, its libraries, this machine. Imports no torch."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import arena
from arena import paths
from arena.system import process


def origin() -> dict[str, str | None]:
    """These facts, for a run's manifest."""
    return {
        "arena_version": arena.__version__,
        "arena_commit": commit(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "triton": version("triton"),
        "machine": machine(),
    }


def commit() -> str | None:
    """The checkout's commit, with `-dirty` when it was changed since; None outside one."""
    if (root := paths.checkout()) is None:
        return None
    try:
        done = process.run(["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"], limit_s=20)
    except OSError:  # no git here
        return None
    return done.stdout.decode().strip() if done.returncode == 0 else None


def version(distribution: str) -> str | None:
    """Version of an installed distribution; None without one of that name."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def processor() -> str:
    """The processor's name from the kernel."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.machine()


def machine() -> str:
    """The machine in one line, with the processors that this process may use."""
    cores = len(os.sched_getaffinity(0))
    return f"{processor()}, {cores} cores, Linux {platform.release()} {platform.machine()}, Python {platform.python_version()}"
