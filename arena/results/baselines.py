"""`baselines/<hardware>/<problem>.yaml`: the measured speed of libraries on a problem. Shown, never scored."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from pathlib import Path

from arena.errors import DataError
from arena.files import documents
from arena.schema import Baselines


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of the installed ones among `packages`, by their import names."""
    owners = importlib.metadata.packages_distributions()
    return {name: importlib.metadata.version(owners[name][0]) for name in packages if name in owners}


def write(root: Path, record: Baselines) -> Path:
    """Write the record below `root`, over an older one of the same problem and hardware."""
    path = root / record.hardware / f"{record.problem}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    documents.write_yaml(path, record)
    return path


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
