"""Homes whose runs are exported: those of the pages, with a prompt and a submission that arena vouches for."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sites import SOURCE, home, passed, run_files

from arena.export import stored_run
from arena.export.stored_run import StoredRun
from arena.schema import Annotation, SubmissionRecord

PROMPT = "Write a fast kernel.\n"


def submitted(run: Annotation, source: str = SOURCE) -> Annotation:
    """The run with the record of its submission."""
    data = source.encode()
    kept = SubmissionRecord(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data), lines=source.count("\n"))
    return run.model_copy(update={"submission": kept})


def with_files(folder: Path, run: Annotation, trajectory: Sequence[Mapping[str, Any]], source: str = SOURCE) -> StoredRun:
    """A home of this one run with files, read back."""
    made = home(folder, [run])
    files(made, run, trajectory, source)
    return stored_run.read(run, made / "workspaces")


def files(made: Path, run: Annotation, trajectory: Sequence[Mapping[str, Any]], source: str = SOURCE) -> Path:
    """The run's folder, with its prompt and its digest in arena's log."""
    folder = run_files(made, run, trajectory, [source])
    (folder / "work").mkdir()
    (folder / "work" / "PROMPT.md").write_text(PROMPT)
    noted = {"kind": "filled", "prompt_sha256": hashlib.sha256(PROMPT.encode()).hexdigest()}
    (folder / "events.jsonl").write_text(json.dumps(noted) + "\n")
    return folder


def known(number: int = 1, **cell: Any) -> Annotation:
    """A passed run with a submission."""
    return submitted(passed(number, **cell))


def session(text: str = "said") -> list[dict[str, Any]]:
    """A session of two turns with a repeated id, a stray result, an error, and usage."""
    usage = {"input_tokens": 10, "cache_read_tokens": 7, "cache_write_tokens": 3, "output_tokens": 5, "reasoning_tokens": 2}
    return [
        {"at_s": 0.0, "kind": "session", "id": "own"},
        {"at_s": 0.1, "kind": "thinking", "text": f"{text} to itself"},
        {"at_s": 0.2, "kind": "text", "text": f"{text} first"},
        {"at_s": 0.3, "kind": "call", "id": "a", "tool": "bash", "input": {"command": "ls"}},
        {"at_s": 0.4, "kind": "call", "id": "b", "tool": "bash", "input": "no object"},
        {"at_s": 0.5, "kind": "result", "id": "b", "output": "two", "ok": False},
        {"at_s": 0.6, "kind": "result", "id": "a", "output": "one", "ok": True},
        {"at_s": 0.7, "kind": "usage", **usage},
        {"at_s": 0.8, "kind": "error", "text": "try again", "status": 529},
        {"at_s": 0.9, "kind": "call", "id": "a", "tool": "write", "input": {"path": "solution.py"}},
        {"at_s": 1.5, "kind": "result", "id": "a", "output": "again", "ok": True},
        {"at_s": 1.6, "kind": "result", "id": "never called", "output": "stray", "ok": True},
        {"at_s": 1.7, "kind": "text", "text": f"{text} last"},
        {"at_s": 1.8, "kind": "usage", **usage},
        {"at_s": 1.9, "kind": "end", "ok": True, "text": f"{text} last"},
    ]
