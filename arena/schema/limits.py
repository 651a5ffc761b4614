"""The limits of a sandbox."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from arena.schema.common import Count, Positive, Record


class Limits(Record):
    """The limits of a sandbox. A missing one defaults to `arena/sandboxes/limits.yaml`, or to no bound. MiB are 2^20 bytes."""

    memory_mib: Count | None = None
    """All memory of the sandbox, including its /tmp, home, /dev/shm and (as root) workspace."""
    memory_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    """The same as a fraction of the memory that arena itself may use. With both, the smaller counts."""
    cpus: Positive | None = None
    """CPU time, in CPUs."""
    processes: Count | None = None
    """Threads count."""
    open_files: Count | None = None
    file_mib: Count | None = None
    """The largest single file."""
    tmp_mib: Count | None = None
    home_mib: Count | None = None
    shm_mib: Count | None = None
    workspace_mib: Count | None = None
    workspace_files: Count | None = None

    def replaced(self, own: Limits | None) -> Limits:
        """These limits, replaced by those that `own` names. A memory size replaces a memory fraction, and the reverse."""
        if own is None:
            return self
        named = own.model_dump(exclude_none=True)
        memory = {"memory_mib", "memory_fraction"}
        dropped = memory if memory & named.keys() else set()
        return Limits(**self.model_dump(exclude_none=True, exclude=dropped) | named)


class DefaultLimits(Record):
    """`arena/sandboxes/limits.yaml`."""

    schema_version: Literal[1]
    agent: Limits
    worker: Limits
