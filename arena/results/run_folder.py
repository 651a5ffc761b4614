"""A run's folder: `workspaces/<run_id>/`, everything about one attempt at one cell.

manifest.json    first: what is being run, versions and digests
events.jsonl     arena's own log, one JSON object a line, only ever appended
agent/           the harness's raw standard output and error
trajectory.jsonl what the agent did, step by step, in one form for all harnesses
ledger.jsonl     every request to the model and what came of it; only with a gateway
network.jsonl    requests to the egress proxy, one JSON object each; only with network `allow`
work/            the workspace itself, the only folder that the agent can write
snapshots/       every state of solution.py seen, named by its time
solution.py      the submission, as it was scored
score.json       what the judge said
result.yaml      last: its existence means that the run is committed
lock             locked by the arena process that plays the run, for as long as it lives
"""

from __future__ import annotations

import fcntl
import json
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import jinja2

from arena.errors import DataError
from arena.files import documents
from arena.schema import Annotation, Cell, Problem, Profile


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run."""

    folder: Path

    @property
    def run_id(self) -> str:
        return self.folder.name

    @property
    def manifest(self) -> Path:
        return self.folder / "manifest.json"

    @property
    def events(self) -> Path:
        return self.folder / "events.jsonl"

    @property
    def agent(self) -> Path:
        return self.folder / "agent"

    @property
    def trajectory(self) -> Path:
        return self.folder / "trajectory.jsonl"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.jsonl"

    @property
    def network(self) -> Path:
        return self.folder / "network.jsonl"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    @property
    def snapshots(self) -> Path:
        return self.folder / "snapshots"

    @property
    def solution(self) -> Path:
        return self.folder / "solution.py"

    @property
    def score(self) -> Path:
        return self.folder / "score.json"

    @property
    def result(self) -> Path:
        return self.folder / "result.yaml"

    @property
    def lock(self) -> Path:
        return self.folder / "lock"

    def event(self, kind: str, **data: object) -> None:
        """Append one line to events.jsonl: the time in UTC, the kind, and JSON data."""
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "kind": kind, **data}, ensure_ascii=True)
        # One write to a descriptor in append mode: lines of several threads never mix, and nothing waits in a buffer of ours.
        with self.events.open("ab", buffering=0) as file:
            file.write(line.encode() + b"\n")


@dataclass(frozen=True)
class RunState:
    """A run as a listing shows it."""

    run: RunFolder
    state: Literal["committed", "interrupted", "running"]
    cell: Cell | None
    """None when the manifest is not one that this version of arena can read."""


@contextmanager
def create(cell: Cell, *, manifest: Mapping[str, Any], root: Path) -> Iterator[RunFolder]:
    """A new run of `cell`, locked for the length of the block; `manifest` is written first, with the run's id and the cell."""
    root.mkdir(parents=True, exist_ok=True)
    folder, reserved = _reserve(cell, root)
    with (reserved / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        document = {"schema_version": 1, "run_id": folder.name, "cell": cell.model_dump(mode="json"), **manifest}
        documents.write_json(reserved / "manifest.json", document)
        for name in ("agent", "work", "snapshots"):
            (reserved / name).mkdir()
        # Only now does it bear its name: no listing ever sees a run without its manifest or its lock.
        reserved.rename(folder)
        run = RunFolder(folder)
        run.event("created")
        yield run


def commit(run: RunFolder, annotation: Annotation) -> None:
    """Write result.yaml, the last file of a run: from here on it counts."""
    run.event("committed", verdict=annotation.score.verdict)
    documents.write_yaml(run.result, annotation)


def runs(root: Path) -> list[RunState]:
    """Every run under `root`, oldest first: the folders that hold a manifest and bear their final name."""
    found = [RunFolder(manifest.parent) for manifest in sorted(root.glob("[!.]*/manifest.json"))]
    return [RunState(run, _state(run), _cell(run)) for run in found]


def events(run: RunFolder) -> list[dict[str, Any]]:
    """The lines of events.jsonl. A last line without its end, torn by a crash, is left out."""
    whole = run.events.read_bytes().split(b"\n")[:-1]
    try:
        return [json.loads(line) for line in whole]
    except ValueError as error:
        raise DataError(f"{run.events}: not one JSON object a line ({error})") from None


def fill(
    run: RunFolder,
    problem: Problem,
    profile: Profile,
    shapes: Sequence[Mapping[str, int]],
    machine: str,
    *,
    problem_folder: Path,
    kit_folder: Path,
) -> str:
    """Put into `work/` all that the agent is given, and nothing else; the rendered prompt comes back."""
    shutil.copyfile(problem_folder / "reference.py", run.work / "reference.py")
    for name in ("check.py", "benchmark.py"):
        shutil.copyfile(kit_folder / name, run.work / name)
    public = problem.model_dump(
        mode="json",
        include={"name", "title", "operator", "inputs", "outputs", "outputs_given", "tolerance", "stress", "forbidden"},
    )
    figures = {
        "profile": profile,
        "shapes": [dict(shape) for shape in shapes],
        "flops": [problem.flops(shape) for shape in shapes],
        "bytes": [problem.bytes(shape) for shape in shapes],
        "latency": [dict(shape) for shape in problem.latency.get(profile, ())],
    }
    documents.write_json(run.work / "problem.json", public | figures)
    prompt = render_prompt(kit_folder / "prompt.md.j2", problem=problem, profile=profile, shapes=shapes, machine=machine)
    documents.write_text(run.work / "PROMPT.md", prompt)
    return prompt


def render_prompt(template: Path, **variables: object) -> str:
    """The template with `variables`; a name in it that is not given is an error, never an empty string."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    try:
        return environment.from_string(template.read_text()).render(**variables)
    except jinja2.TemplateSyntaxError as error:
        raise DataError(f"{template}:{error.lineno}: {error.message}") from None
    except jinja2.UndefinedError as error:
        raise DataError(f"{template}: {error.message} (given: {', '.join(variables)})") from None


def _reserve(cell: Cell, root: Path) -> tuple[Path, Path]:
    """The folder that the run will have, and the hidden one that keeps its name free of others until then."""
    while True:
        # A model may be called anything, and `replay/<run_id>` is long: file-name safe, and cut so that the name fits everywhere.
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


def _state(run: RunFolder) -> Literal["committed", "interrupted", "running"]:
    if run.result.exists():
        return "committed"
    # A lock is dropped by the kernel however its holder dies; a stored pid could belong to another process by now.
    try:
        with run.lock.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "running"
    except FileNotFoundError:
        return "interrupted"
    # A run that was committed between the two looks is no interrupted one.
    return "committed" if run.result.exists() else "interrupted"


def _cell(run: RunFolder) -> Cell | None:
    try:
        return Cell.model_validate(json.loads(run.manifest.read_bytes())["cell"])
    except (ValueError, KeyError, TypeError):  # ValueError covers text that is no JSON and a cell with other fields
        return None
