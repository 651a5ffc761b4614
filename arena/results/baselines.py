"""`baselines/<hardware>/<problem>.yaml`: what libraries reach at a problem, as it was measured. Shown, never scored."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from pathlib import Path

from arena.errors import DataError
from arena.files import documents
from arena.schema import Baselines


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those packages that are installed, by the names under which they are imported."""
    owners = importlib.metadata.packages_distributions()
    return {name: importlib.metadata.version(owners[name][0]) for name in packages if name in owners}


def write(root: Path, record: Baselines) -> Path:
    """Write the record at its place below `root`, over an older one of the same problem and hardware."""
    path = root / record.hardware / f"{record.problem}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    documents.write_yaml(path, record)
    return path


def read(path: Path) -> Baselines:
    """The record in a file, which bears the names of its hardware and its problem."""
    record = documents.read_yaml(path, Baselines)
    if (record.hardware, record.problem) != (path.parent.name, path.stem):
        raise DataError(f"{path}: is of {record.problem!r} on {record.hardware!r}, which is another place")
    return record


def read_all(root: Path) -> list[Baselines]:
    """All records by hardware and problem; the faults of all files come in one error."""
    found, faults = [], []
    for path in sorted(root.glob("*/*.yaml")):
        try:
            found.append(read(path))
        except DataError as error:
            faults.append(str(error))
    if faults:
        raise DataError("\n".join(faults))
    return found
