"""Limits of a sandbox in bytes: the defaults of limits.yaml, and a harness's own in their place."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Literal

from arena import schema
from arena.errors import UsageError
from arena.files.documents import read_yaml
from arena.sandboxes import MIB, Limits
from arena.sandboxes.cgroup import own_cgroups

DEFAULTS = Path(__file__).with_name("limits.yaml")


def limits_for(kind: Literal["agent", "worker"], own: schema.Limits | None = None, *, parallel: int = 1) -> Limits:
    """Limits of a sandbox of that kind; `own` replaces single ones, and `parallel` of them share the machine's memory.

    UsageError when one exceeds what this machine has.
    """
    defaults = _defaults()
    given = (defaults.agent if kind == "agent" else defaults.worker).replaced(own)
    pids = int(Path("/proc/sys/kernel/pid_max").read_text())
    return in_bytes(given, machine_bytes() // parallel, len(os.sched_getaffinity(0)), pids)


def in_bytes(given: schema.Limits, machine_bytes: int, cores: int, pids: int) -> Limits:
    """The same in bytes, on a machine with that much memory, that many processors and process ids."""
    for name, wanted, available, unit in (
        ("memory_mib", given.memory_mib, machine_bytes // MIB, "MiB of memory"),
        ("cpus", given.cpus, cores, "processors"),
        ("processes", given.processes, pids, "process ids"),
    ):
        if wanted is not None and wanted > available:
            raise UsageError(
                f"limits.{name}: {wanted:g} would limit nothing, this machine has {available} {unit}; choose a smaller value"
            )
    shares = [int(given.memory_fraction * machine_bytes)] if given.memory_fraction is not None else []
    memory_bytes = min([*shares, *([given.memory_mib * MIB] if given.memory_mib is not None else [])], default=None)
    workspace_bytes = None if given.workspace_mib is None else given.workspace_mib * MIB
    if workspace_bytes is not None and memory_bytes is not None:
        workspace_bytes = min(workspace_bytes, memory_bytes)  # it may be made of memory
    sizes = {"tmp": given.tmp_mib, "home": given.home_mib, "shm": given.shm_mib, "file": given.file_mib}
    counts = {"open_files": given.open_files, "processes": given.processes}
    return Limits(
        **{f"{name}_bytes": mib * MIB for name, mib in sizes.items() if mib is not None},
        **{name: count for name, count in counts.items() if count is not None},
        memory_bytes=memory_bytes,
        cpus=given.cpus,
        workspace_bytes=workspace_bytes,
        workspace_files=given.workspace_files,
    )


def machine_bytes() -> int:
    """Memory of this machine, or of the container that arena runs in."""
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    sizes = [int(lines["MemTotal"].split()[0]) << 10]
    own = own_cgroups()
    for name, file in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
        for folder in (own[name].folder, *own[name].folder.parents) if name in own else ():
            if (folder / file).exists() and (text := (folder / file).read_text().strip()) != "max":
                sizes.append(int(text))
    return min(sizes)


@functools.cache
def _defaults() -> schema.DefaultLimits:
    return read_yaml(DEFAULTS, schema.DefaultLimits)
