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


def path_of(root: Path, hardware: str, problem: str) -> Path:
    """Where the record of that problem and hardware lies below `root`."""
    return root / hardware / f"{problem}.yaml"


def write(root: Path, record: Baselines) -> Path:
    """Write the record below `root`, over an older one of the same problem and hardware."""
    path = path_of(root, record.hardware, record.problem)
    path.parent.mkdir(parents=True, exist_ok=True)
    documents.write_yaml(path, record)
    return path


def added(stored: Baselines, record: Baselines) -> Baselines:
    """`record` with the lines of `stored` that it lacks or could not run. Device, time and arena's version are those of `record`.

    Baselines come first, then the references, each in the order of their names.
    """
    measured = {line.name: line for line in stored.lines}
    measured |= {line.name: line for line in record.lines if line.verdict is not None or line.name not in measured}
    ordered = sorted(measured.values(), key=lambda line: (line.reference, line.name))
    more = {"device": record.device or stored.device, "versions": {**stored.versions, **record.versions}}
    return record.model_copy(update={**more, "lines": tuple(ordered)})


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
