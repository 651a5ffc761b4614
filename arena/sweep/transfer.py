"""A run folder on its way between machines: its regular files, packed and unpacked."""

from __future__ import annotations

import io
import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from arena.errors import DataError
from arena.files import documents

WORK_BYTES = 256 << 20
"""Of the files of an agent's workspace; those that would be more stay where they are."""
LAST = ("session.json", "score.json", "result.yaml")
"""Each of them says that what comes before it is whole."""
RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def pack(folder: Path, *, work: bool = True) -> bytes:
    """The regular files of a run. Links and devices of an agent's making stay behind, and its annotation is another machine's
    business. `work`: with the agent's workspace.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        left = WORK_BYTES
        for path in _files(folder):
            name = path.relative_to(folder)
            agents = name.parts[0] == "work"
            if name.parts == ("lock",) or (agents and not work):
                continue
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if agents and (left := left - size) < 0:
                    break
                data = file.read(size)
            if name.parts == ("events.jsonl",):
                data = b"".join(line for line in data.splitlines(keepends=True) if b'"kind": "annotated"' not in line)
            entry = tarfile.TarInfo(name.as_posix())
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _files(folder: Path) -> Iterator[Path]:
    """Regular files below a folder, those of the workspace last."""
    for at, folders, names in os.walk(folder):
        folders.sort(key=lambda name: (name == "work", name))
        for name in sorted(names):
            path = Path(at, name)
            if path.is_file() and not path.is_symlink():
                yield path


def unpack(packed: bytes, run_id: str, root: Path) -> None:
    """Write a packed run below `root`: a new one appears whole, one that is there gets the files that are new.

    DataError when it would write anywhere else.
    """
    if not RUN_ID.fullmatch(run_id):
        raise DataError(f"{run_id!r} is no run's id")
    folder = root / run_id
    hidden = root / f".{run_id}"
    target = folder if folder.exists() else hidden
    if target == hidden:
        shutil.rmtree(hidden, ignore_errors=True)  # of one who was killed here
        for name in ("agent", "work", "snapshots"):
            (hidden / name).mkdir(parents=True)
        (hidden / "lock").touch()
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
        entries = sorted(tar.getmembers(), key=lambda entry: LAST.index(entry.name) if entry.name in LAST else -1)
        for entry in entries:
            inside = PurePosixPath(entry.name)
            content = tar.extractfile(entry) if entry.isreg() else None
            if content is None or inside.is_absolute() or ".." in inside.parts:
                raise DataError(f"run {run_id}: {entry.name!r} is no file of a run folder")
            path = target / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            if target == hidden:
                path.write_bytes(content.read())
            else:
                documents.write_bytes(path, content.read())
    if target == hidden:
        hidden.rename(folder)
