"""What the files of one run hold for an export. They are an agent's own words, so every line may be of any form."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeGuard

from arena.acceptable import MOST_BYTES
from arena.agents.snapshots import Stored, stored
from arena.agents.trajectory import FIELDS, MOST_TOKENS
from arena.results import run_folder
from arena.results.run_folder import RunFolder
from arena.schema import Annotation
from arena.submission import NoSubmission, read_regular

TRAJECTORY_BYTES = 80 << 20
"""Above the largest trajectory that arena keeps."""
PROMPT_BYTES = MANIFEST_BYTES = 1 << 20
LONGEST_S = 1e7
MOST_LEVELS = 100
"""Above any session: a time beyond it is no time."""
TOKENS = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens")

Step = Mapping[str, Any]
"""One step of a trajectory, with `at_s`, `kind` and that kind's fields; see `arena.agents.trajectory`. Besides: `cut` and
`unreadable`, both with `text`."""


@dataclass(frozen=True)
class StoredRun:
    """An annotation, and what is left of its run's files on this machine."""

    annotation: Annotation
    prompt: str | None
    """None when it is not here, or is no longer what arena wrote: the file lies in the agent's own folder."""
    steps: tuple[Step, ...]
    source: str | None
    """The submission."""
    snapshots: tuple[Stored, ...]
    program: str | None = None
    """Version of the agent CLI; None for a harness without one, and where arena's manifest of the run is not here."""

    def time_of(self, at_s: float) -> datetime:
        """The UTC time of a step."""
        return self.annotation.session.started_at + timedelta(seconds=at_s)


def read(annotation: Annotation, workspaces: Path) -> StoredRun:
    """Read a run's files. No link is followed; what is missing is left out."""
    run = RunFolder(workspaces / annotation.run_id)
    if run.folder.is_symlink() or not run.folder.is_dir():
        return StoredRun(annotation, None, (), None, ())
    there = run.snapshots.is_dir() and not run.snapshots.is_symlink()
    kept = [snapshot for snapshot in stored(run.snapshots) if not snapshot.path.is_symlink()] if there else []
    return StoredRun(annotation, _prompt(run), _steps(run), _source(run, annotation), tuple(kept), _program(run))


def _program(run: RunFolder) -> str | None:
    try:
        manifest = json.loads(read_regular(run.folder, run.manifest.name, MANIFEST_BYTES))
        return str(manifest["program"]["version"])
    except (NoSubmission, ValueError, KeyError, TypeError):
        return None


def _prompt(run: RunFolder) -> str | None:
    """The prompt, when it still has the digest that arena noted before the agent started."""
    if run.events.is_symlink() or not run.events.is_file():
        return None
    digests = [event.get("prompt_sha256") for event in run_folder.read_events(run) if event.get("kind") == "filled"]
    try:
        kept = read_regular(run.folder, "work/PROMPT.md", PROMPT_BYTES)
    except NoSubmission:
        return None
    return kept.decode(errors="replace") if hashlib.sha256(kept).hexdigest() in digests else None


def _source(run: RunFolder, annotation: Annotation) -> str | None:
    try:
        kept = read_regular(run.folder, run.solution.name, MOST_BYTES)
    except NoSubmission:
        return None
    recorded = annotation.submission.sha256 if annotation.submission else None
    return kept.decode(errors="replace") if hashlib.sha256(kept).hexdigest() == recorded else None


def _steps(run: RunFolder) -> tuple[Step, ...]:
    if not (run.trajectory.is_symlink() or run.trajectory.is_file()):
        return ()
    try:
        kept = read_regular(run.folder, run.trajectory.name, TRAJECTORY_BYTES)
    except NoSubmission as fault:
        return ({"at_s": 0.0, "kind": "unreadable", "text": fault.reason},)
    return tuple(step(line) for line in io.BytesIO(kept))


def step(line: bytes) -> Step:
    """One line of a trajectory as a step whose fields have the types of its kind."""
    try:
        data = json.loads(line, parse_constant=str, parse_float=_float)
        if not isinstance(data, dict):
            raise ValueError("no object")
        return _typed(_clean(data))
    except (ValueError, RecursionError):
        return {"at_s": 0.0, "kind": "unreadable", "text": line.decode(errors="replace").rstrip("\n")}


def _typed(data: Mapping[str, Any]) -> Step:
    """ValueError for a kind that no step has, or when a field is missing."""
    kind, at_s = str(data.get("kind")), data.get("at_s")
    known = {"at_s": at_s if _is_number(at_s) and 0 <= at_s <= LONGEST_S else 0.0, "kind": kind}
    if kind == "cut":
        return known | {"text": f"arena kept the first {data.get('kept_bytes')} bytes"}
    if kind not in FIELDS or not FIELDS[kind] <= data.keys():
        raise ValueError(f"{kind!r} is no kind of step")
    if kind == "usage":
        return known | {name: _tokens(data[name]) for name in TOKENS}
    if kind == "call":
        return known | {"id": str(data["id"]), "tool": str(data["tool"]), "input": data["input"]}
    texts = {name: data[name] if isinstance(data[name], str) else _json(data[name]) for name in FIELDS[kind] - {"ok", "status"}}
    flags = {name: bool(data[name]) for name in FIELDS[kind] & {"ok"}}
    status = {"status": data["status"] if isinstance(data["status"], int) else None} if kind == "error" else {}
    return known | texts | flags | status


def _clean(value: Any, levels: int = MOST_LEVELS) -> Any:
    """The same data without lone surrogates, which no UTF-8 file can hold. ValueError where it is nested too deep."""
    if not levels:
        raise ValueError(f"nested deeper than {MOST_LEVELS} levels")
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_clean(name): _clean(each, levels - 1) for name, each in value.items()}
    return [_clean(each, levels - 1) for each in value] if isinstance(value, list) else value


def _float(text: str) -> float | str:
    found = float(text)
    return found if math.isfinite(found) else text


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _tokens(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value <= MOST_TOKENS else 0


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)
