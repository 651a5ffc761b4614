"""The run folder: `workspaces/<run_id>/`, all files of one run.

manifest.json    first: what is being run, versions and digests
events.jsonl     arena's own log, one JSON object a line, only ever appended
agent/           the agent's raw standard output and error
trajectory.jsonl the agent's steps, in one form for all harnesses
ledger.jsonl     every request to the model and its outcome; only with a gateway
network.jsonl    every request to the egress proxy, one JSON object a line; only with network `allow`
work/            the workspace, the only folder that the agent can write; TIME in it says when the session ends
snapshots/       every observed state of solution.py, named by its time
solution.py      the submission
session.json     how the session ended; from then on the run can be judged, now or by `arena judge`
score.json       the judge's score
result.yaml      last: its existence means that the run is committed
lock             locked by the arena process of the run while it lives

A file without a name holds space on the disk for the files that end the run. It ends with the arena process, however that ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

from arena import paths
from arena.errors import ArenaError, DataError, UsageError
from arena.files import documents
from arena.files.text import render
from arena.schema import Annotation, Cell, EndedSession, Problem, Profile, SweepPlace

SOURCE_RULES = ("acceptable.py", "judge/forbidden.py", "judge/name_resolution.py")
"""What a source is refused for. Every workspace has a copy, so that check.py tells the agent what a score would."""
ROOM_BYTES = 8 << 20
"""Held on the disk from the start: half for solution.py and events, half for score.json and result.yaml. A disk that another
program fills meanwhile takes a run's logs, and not its record."""


State = Literal["committed", "unjudged", "interrupted", "running"]
"""unjudged: the session has ended, and its submission has no score yet."""


LISTED_S = 1.0
"""A list of runs takes each lock for a moment, which is no arena at work."""


@dataclass
class RunFolder:
    """The paths of one run."""

    folder: Path

    def __post_init__(self) -> None:
        folder = self.folder
        self.run_id = folder.name
        self.manifest = folder / "manifest.json"
        self.events = folder / "events.jsonl"
        self.agent = folder / "agent"
        self.trajectory = folder / "trajectory.jsonl"
        self.ledger = folder / "ledger.jsonl"
        self.network = folder / "network.jsonl"
        self.work = folder / "work"
        self.snapshots = folder / "snapshots"
        self.solution = folder / "solution.py"
        self.session = folder / "session.json"
        self.score = folder / "score.json"
        self.result = folder / "result.yaml"
        self.lock = folder / "lock"
        self.room: IO[bytes] | None = None

    def event(self, kind: str, **data: object) -> None:
        """Append one line to events.jsonl: the time in UTC, the kind, and JSON data."""
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "kind": kind, **data}, ensure_ascii=True)
        # One unbuffered write in append mode: lines of several threads never mix, and a crash loses none.
        with self.events.open("ab", buffering=0) as file:
            file.write(line.encode() + b"\n")

    def free_room(self, keep_bytes: int = 0) -> None:
        """Free the space that the run holds on the disk, down to `keep_bytes`."""
        if self.room and os.fstat(self.room.fileno()).st_size > keep_bytes:
            self.room.truncate(keep_bytes)


@dataclass(frozen=True)
class RunState:
    """A run in a list."""

    run: RunFolder
    state: State
    cell: Cell | None
    """None when this version of arena cannot read the manifest."""
    sweep: SweepPlace | None = None
    """The sweep that it belongs to."""


@contextmanager
def create(cell: Cell, *, manifest: Mapping[str, Any], root: Path) -> Iterator[RunFolder]:
    """Create a run of `cell` and lock it for the block. The first file is `manifest`, with the run's id and the cell added."""
    root.mkdir(parents=True, exist_ok=True)
    folder, reserved = _reserve_name(cell, root)
    with (reserved / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        document = {"schema_version": 1, "run_id": folder.name, "cell": cell.model_dump(mode="json"), **manifest}
        documents.write_json(reserved / "manifest.json", document)
        for name in ("agent", "work", "snapshots"):
            (reserved / name).mkdir()
        run = RunFolder(folder)
        with ExitStack() as stack:
            try:
                stack.enter_context(_hold_room(run, reserved))
            except ArenaError:
                shutil.rmtree(reserved)
                raise
            # The folder gets its name last, so no list shows a run without its manifest or its lock.
            reserved.rename(folder)
            run.event("created")
            yield run


@contextmanager
def reopen(run: RunFolder) -> Iterator[RunFolder]:
    """Lock a run whose arena has ended, for the block. UsageError when it has not."""
    with run.lock.open("wb") as lock:
        end_s = time.monotonic() + LISTED_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end_s:
                    raise UsageError(f"run {run.run_id} is still running: wait for its end") from None
                time.sleep(0.02)
        with _hold_room(run, run.folder):
            run.event("reopened")
            yield run


@contextmanager
def _hold_room(run: RunFolder, folder: Path) -> Iterator[None]:
    """Hold space on the folder's disk for the run's last files, for the block. ArenaError when there is too little."""
    # A file without a name: a killed arena leaves nothing of it.
    with tempfile.TemporaryFile(dir=folder, buffering=0) as room:
        try:
            os.posix_fallocate(room.fileno(), 0, ROOM_BYTES)
        except OSError as error:
            text = f"{folder.parent}: a run needs {ROOM_BYTES >> 20} MiB here for its record, and more for its logs"
            raise ArenaError(f"{text}: {error.strerror}") from None
        run.room = room
        try:
            yield
        finally:
            run.room = None


def end_session(run: RunFolder, ended: EndedSession, source: bytes | None) -> None:
    """Keep the submission's bytes and then how the session ended: whatever happens now, the session is not lost."""
    if source is not None:
        documents.write_bytes(run.solution, source)
    documents.write_json(run.session, ended)
    digest = ended.submission.sha256 if ended.submission else None
    run.event("collected", sha256=digest, reason=ended.reason)


def commit(run: RunFolder, annotation: Annotation) -> None:
    """Write result.yaml, the last file of a run: it makes the run count."""
    run.event("committed", verdict=annotation.score.verdict)
    documents.write_yaml(run.result, annotation)


def list_runs(root: Path) -> list[RunState]:
    """Every run under `root`, oldest first: the folders with a manifest and their final name."""
    runs = [RunFolder(manifest.parent) for manifest in sorted(root.glob("[!.]*/manifest.json"))]
    return [RunState(run, _state(run), *_read_manifest(run)) for run in runs]


def read_state(root: Path, run_id: str) -> RunState:
    """One run under `root`. UsageError when its files are not here."""
    run = RunFolder(root / run_id)
    if not run.manifest.exists():
        raise UsageError(f"the files of run {run_id} are not here ({root}): go where it was made")
    return RunState(run, _state(run), *_read_manifest(run))


def read_events(run: RunFolder) -> list[dict[str, Any]]:
    """The lines of events.jsonl, without a last line that a crash cut off."""
    whole = run.events.read_bytes().split(b"\n")[:-1]
    try:
        return [json.loads(line) for line in whole]
    except ValueError as error:
        raise DataError(f"{run.events}: not one JSON object a line ({error})") from None


def fill_workspace(
    run: RunFolder,
    problem: Problem,
    profile: Profile,
    shapes: Sequence[Mapping[str, int]],
    machine: str,
    budget_s: float | None,
    *,
    problem_folder: Path,
    kit_folder: Path,
) -> str:
    """Write into `work/` all that the agent gets, and nothing else. Return the rendered prompt.

    With a budget the prompt names it and a command that says what is left; `start_clock` gives that command the end.
    """
    shutil.copyfile(problem_folder / "reference.py", run.work / "reference.py")
    for name in ("check.py", "benchmark.py", *(("time_left.py",) if budget_s is not None else ())):
        shutil.copyfile(kit_folder / name, run.work / name)
    (run.work / "rules").mkdir()
    for rules in SOURCE_RULES:
        source = paths.PACKAGE / rules
        documents.write_text(run.work / "rules" / source.name, source.read_text().replace("from arena.judge.", "from rules."))
    facts = {"name", "title", "operator", "inputs", "outputs", "tolerance", "stress", "forbidden"}
    sizes = {
        "profile": profile,
        "shapes": [dict(shape) for shape in shapes],
        "flops": [problem.flops(shape) for shape in shapes],
        "bytes": [problem.bytes(shape) for shape in shapes],
        "latency": [dict(shape) for shape in problem.latency.get(profile, ())],
    }
    documents.write_json(run.work / "problem.json", problem.model_dump(mode="json", include=facts) | sizes)
    budget = None if budget_s is None else duration(budget_s)
    template = kit_folder / "prompt.md.j2"
    prompt = render(template, problem=problem, profile=profile, shapes=shapes, machine=machine, budget=budget)
    documents.write_text(run.work / "PROMPT.md", prompt)
    return prompt


def start_clock(run: RunFolder, budget_s: float) -> None:
    """Write the session's end into `work/TIME`. Call it before the agent starts: the folder is the agent's from then on.

    Nothing reads the file but the agent's own `time_left.py`. The supervisor has its own clock, and a changed file misleads only
    the agent.
    """
    documents.write_json(run.work / "TIME", {"ends_at": time.time() + budget_s, "budget_s": budget_s})


def duration(seconds: float) -> str:
    """In words: `45 minutes`, or `90 seconds` where it is no whole number of minutes."""
    if seconds % 60:
        return f"{seconds:g} seconds"
    return f"{seconds / 60:g} minute{'s' if seconds != 60 else ''}"


def _reserve_name(cell: Cell, root: Path) -> tuple[Path, Path]:
    """The run's final folder, and the hidden folder that reserves its name until then."""
    while True:
        # A model's name can hold any character, and `replay/<run_id>` is long: make it file-name safe, and cut it to fit.
        model = re.sub(r"[^A-Za-z0-9.-]+", "-", cell.model).strip("-.")[:64]
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        folder = root / f"{now}_{cell.harness}_{model}_{cell.problem}_{secrets.token_hex(2)}"
        reserved = root / f".{folder.name}"
        try:
            reserved.mkdir()
        except FileExistsError:
            continue
        if not folder.exists():
            return folder, reserved
        reserved.rmdir()


def _state(run: RunFolder) -> State:
    if run.result.exists():
        return "committed"
    # The kernel drops the lock however its holder dies; a stored pid could belong to another process by now.
    try:
        with run.lock.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "running"
    except FileNotFoundError:
        return "interrupted"
    # The run may have been committed since the first look at its result.
    return "committed" if run.result.exists() else "unjudged" if run.session.exists() else "interrupted"


def _read_manifest(run: RunFolder) -> tuple[Cell | None, SweepPlace | None]:
    try:
        manifest = json.loads(run.manifest.read_bytes())
        sweep = manifest.get("sweep")
        return Cell.model_validate(manifest["cell"]), SweepPlace.model_validate(sweep) if sweep else None
    except (ValueError, KeyError, TypeError, AttributeError):  # ValueError: text that is not JSON, or a cell with other fields
        return None, None
