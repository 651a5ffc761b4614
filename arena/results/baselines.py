"""`baselines/<hardware>/<problem>.yaml`: the measured speed of libraries on a problem. Shown, never scored."""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from arena.errors import DataError
from arena.files import documents
from arena.schema import Baselines


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of the installed ones among `packages`, by their import names."""
    owners = importlib.metadata.packages_distributions()
    return {name: importlib.metadata.version(owners[name][0]) for name in packages if name in owners}


def path_of(root: Path, hardware: str, problem: str) -> Path:
    """Where the record of that problem and hardware lies below `root`."""
    return root / hardware / f"{problem}.yaml"


def write(root: Path, record: Baselines) -> Path:
    """Write the record below `root`, over an older one of the same problem and hardware."""
    path = path_of(root, record.hardware, record.problem)
    path.parent.mkdir(parents=True, exist_ok=True)
    documents.write_yaml(path, record)
    return path


def add(root: Path, record: Baselines, known: Collection[str]) -> Baselines:
    """Write the record with the stored lines that it lacks, and return that. Lines that are not `known` are dropped.

    DataError, and nothing is written, where the stored record is of another text of the problem or of other versions.
    """
    path = path_of(root, record.hardware, record.problem)
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # on another GPU of the machine another line may end at the same time
        if path.exists():
            stored = read(path)
            refuse_unlike(path, stored, record.problem_digest, {"arena": record.arena_version, **record.versions})
            record = added(stored, record)
        record = record.model_copy(update={"lines": tuple(line for line in record.lines if line.name in known)})
        documents.write_yaml(path, record)
    finally:
        os.close(folder)
    return record


def refuse_unlike(path: Path, stored: Baselines, digest: str, versions: Mapping[str, str]) -> None:
    """Raise DataError where `stored` is of another text of the problem, or was measured with other versions of these packages."""
    if stored.problem_digest != digest:
        raise DataError(f"{path}: is of an older text of {stored.problem}: measure all lines again, without --line")
    held = {"arena": stored.arena_version, **stored.versions}
    if other := [f"{name} {held[name]}, not {wanted}" for name, wanted in versions.items() if held.get(name, wanted) != wanted]:
        raise DataError(f"{path}: was measured with {' and '.join(other)}: measure all lines again, without --line")


def added(stored: Baselines, record: Baselines) -> Baselines:
    """`record` with the lines of `stored` that it lacks or could not run. `stored` with lines that it lacks where none of it ran.

    The time is that of `record`. The device has no `uuid` where the two are of different cards. Baselines come first, then the
    references, each in the order of their names.
    """
    ran = {line.name: line for line in record.lines if line.verdict is not None}
    every = {line.name: line for line in (*record.lines, *stored.lines)} | ran
    lines = tuple(sorted(every.values(), key=lambda line: (line.reference, line.name)))
    if not ran:
        return stored.model_copy(update={"lines": lines})
    device = record.device or stored.device
    if device and stored.device and stored.device.uuid != device.uuid:
        device = device.model_copy(update={"uuid": None})
    return record.model_copy(update={"device": device, "versions": {**stored.versions, **record.versions}, "lines": lines})


def read(path: Path) -> Baselines:
    """The record in a file; the path must name its hardware and problem."""
    record = documents.read_yaml(path, Baselines)
    if (record.hardware, record.problem) != (path.parent.name, path.stem):
        raise DataError(
            f"{path}: holds {record.problem!r} on {record.hardware!r}, which belongs in {record.hardware}/{record.problem}.yaml"
        )
    return record


def read_all(root: Path) -> list[Baselines]:
    """All records, sorted by hardware and problem. One error lists the faults of all files."""
    return documents.read_all(sorted(root.glob("*/*.yaml")), read)
