"""`curves/<run_id>.yaml`: the scores of a run's snapshots. Shown on the run's page; no table and no order uses them."""

from __future__ import annotations

from pathlib import Path

from arena.errors import DataError
from arena.files import documents
from arena.schema import Curve


def write(root: Path, curve: Curve) -> Path:
    """Write the record below `root`, over an older one of the same run."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / f"{curve.run_id}.yaml"
    documents.write_yaml(path, curve)
    return path


def read(path: Path) -> Curve:
    """The record in a file; the file's name must be its run id."""
    curve = documents.read_yaml(path, Curve)
    if curve.run_id != path.stem:
        raise DataError(f"{path}: run_id: is {curve.run_id!r}, but the file is named {path.stem!r}")
    return curve


def read_all(root: Path) -> list[Curve]:
    """All records, sorted by run id. One error lists the faults of all files."""
    return documents.read_all(sorted(root.glob("*.yaml")), read)
