"""A run folder on its way between machines: its regular files, packed and unpacked."""

from __future__ import annotations

import io
import os
import re
import shutil
import stat
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from arena.errors import DataError
from arena.files import documents
from arena.sweep.node import FULL

WORK_BYTES = 256 << 20
"""Of the files of an agent's workspace; those that would be more stay where they are."""
WORK_FILES = 2000
"""Of them, with folders and links. Each takes time, in which a machine says nothing."""
LAST = ("session.json", "score.json", "result.yaml")
"""Each of them says that what comes before it is whole."""
RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def pack(folder: Path, *, work: bool = True) -> bytes:
    """The regular files of a run; its annotation is another machine's business. OSError.

    `work`: with the agent's workspace. Of that, links, devices and what cannot be read stay behind.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:  # gzip takes ten seconds and more for the largest workspace
        left, left_files = WORK_BYTES, WORK_FILES
        for path in _files(folder, work=work):
            name = path.relative_to(folder)
            agents = name.parts[:1] == ("work",)
            if agents and (left_files := left_files - 1) < 0:
                break
            if name.parts == ("lock",):
                continue
            try:
                data = _content(path, left if agents else None)
            except OSError:  # such as a path that is too long, or one that only the agent's user may read
                if agents:
                    continue
                raise
            if data is None:
                continue
            left -= len(data) * agents
            if name.parts == ("events.jsonl",):
                data = b"".join(line for line in data.splitlines(keepends=True) if b'"kind": "annotated"' not in line)
            entry = tarfile.TarInfo(name.as_posix())
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _files(folder: Path, *, work: bool) -> Iterator[Path]:
    """All that is below a run's folder, the workspace last."""
    for at, folders, names in os.walk(folder):
        folders.sort(key=lambda name: (name == "work", name))
        if not work and Path(at) == folder and "work" in folders:
            folders.remove("work")
        yield Path(at)
        yield from (Path(at, name) for name in sorted(names))


def _content(path: Path, most: int | None) -> bytes | None:
    """What is in a regular file of at most so many bytes; None for anything else. OSError."""
    if not stat.S_ISREG(path.lstat().st_mode):
        return None
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return file.read(size) if most is None or size <= most else None


def member(packed: bytes, name: str) -> bytes | None:
    """One file of a packed run; None when it has none of that name."""
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as tar:
        content = tar.extractfile(name) if name in tar.getnames() else None
        return content.read() if content else None


def unpack(packed: bytes, run_id: str, root: Path) -> None:
    """Write a packed run below `root`: a new one appears whole, one that is there gets the files that differ.

    Files of the agent's workspace that cannot be written here are left out. DataError when it would write anywhere else, OSError.
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
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as tar:
        entries = sorted(tar.getmembers(), key=lambda entry: LAST.index(entry.name) if entry.name in LAST else -1)
        for entry in entries:
            inside = PurePosixPath(entry.name)
            content = tar.extractfile(entry) if entry.isreg() else None
            if content is None or inside.is_absolute() or ".." in inside.parts:
                raise DataError(f"run {run_id}: {entry.name!r} is no file of a run folder")
            agents = inside.parts[0] == "work"
            try:
                _write(target / inside, content.read(), safely=not agents or target == folder)
            except OSError as error:
                if not agents or error.errno in FULL:
                    raise
    if target == hidden:
        hidden.rename(folder)
        documents.sync(root)


def _write(path: Path, data: bytes, *, safely: bool) -> None:
    """Write a file unless it is there with the same bytes; `safely`: whatever happens to the machine. OSError."""
    with suppress(OSError):
        if path.lstat().st_size == len(data) and path.read_bytes() == data:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    if safely:
        documents.write_bytes(path, data)
    else:
        path.write_bytes(data)
