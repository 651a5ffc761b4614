"""An agent's steps in one form for all harnesses: `trajectory.jsonl` in the run folder.

A step is a JSON object with its `kind` and, beside the time, these fields:

    text, thinking   text
    call             id, tool, input      a tool that the agent uses
    result           id, output, ok       of that tool
    usage            input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens (disjoint)
    error            text, status         as the agent CLI reports it; no decision depends on it
    session          id                   of the agent CLI's own record
    end              ok, text             the agent is done, unless another step follows

`read(event)` of the harness's own Python file turns each JSON line of the agent CLI's output into steps.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from arena.errors import DataError
from arena.files.text import SHOWN
from arena.schema import Usage

Event = Mapping[str, Any]
Read = Callable[[Event], list[dict[str, Any]]]
FIELDS = {
    "text": {"text"},
    "thinking": {"text"},
    "call": {"id", "tool", "input"},
    "result": {"id", "output", "ok"},
    "usage": {"input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens"},
    "error": {"text", "status"},
    "session": {"id"},
    "end": {"ok", "text"},
}
KEPT_BYTES = 64 << 20
"""At this size the file ends with a line that says so. The raw output is kept beside it."""
READER_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RecursionError, TypeError, ValueError)
"""Raised by a reader on an event of another form, since an agent can print anything, or by a mistake in the reader."""
MOST_TOKENS = 1 << 40
"""Tokens in one usage."""
TOLD = ("command", "cmd", "path", "file_path", "filePath", "absolute_path", "pattern", "query", "url", "description")
"""Fields of a tool's input, one of which says in a few words what the tool does. The first that is there is shown."""
CHECKS_AT_ONCE = 64
"""Calls of check.py whose results are awaited: an agent may make any number of calls without a result."""


def reader(file: Path | None, terminal: Mapping[str, str] | None) -> Read:
    """The harness's own reader, else one that finds the terminal event by its keys. DataError when the file has no `read`."""
    if file is None:
        return lambda event: [_end(event)] if terminal and all(event.get(k) == v for k, v in terminal.items()) else []
    spec = importlib.util.spec_from_file_location(f"arena_harness_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    read: Read | None = getattr(module, "read", None)
    if read is None:
        raise DataError(f"{file}: defines no function `read`, and the harness names this file under `events`")
    return read


def doing(tool: object, given: object) -> str:
    """A call in a few words: `Bash: python check.py`, `Write: /workspace/solution.py`."""
    if isinstance(given, Mapping):
        changed = given.get("changes")  # of codex: a list of files
        files = [each.get("path") for each in changed if isinstance(each, Mapping)] if isinstance(changed, list) else []
        told = next((given[name] for name in TOLD if given.get(name)), ", ".join(map(str, files)))
        words = " ".join(map(str, told)) if isinstance(told, list) else str(told)
    else:
        words = ""
    return f"{tool}: {words}" if words else str(tool)


def check_result(output: str) -> str:
    """What check.py said at the end of an output: `passed` or `failed`; empty when it said neither."""
    said = [line for line in output.splitlines() if line.strip() in ("PASS", "FAIL")]
    return {"PASS": "passed", "FAIL": "failed"}[said[-1].strip()] if said else ""


def _end(event: Event) -> dict[str, Any]:
    return {"kind": "end", "ok": True, "text": str(event.get("text", ""))}


class Trajectory:
    """The steps of one session, written as they arrive. One thread takes events; any thread may read the rest."""

    def __init__(self, path: Path, read: Read) -> None:
        self.start_s = time.monotonic()
        """When the times of the steps begin, on the monotonic clock."""
        self.ended_s: float | None = None
        """When the last step `end` arrived, on the monotonic clock; None when another step followed it."""
        self.ended_well = False
        """Whether that step reported success."""
        self.last = ""
        """The last text, or the tool in work with its command or file, for a display."""
        self.calls = 0
        """Tools that the agent has used."""
        self.check = ""
        """What its own check.py said last: `passed` or `failed`. Only for a display, since an agent can print anything."""
        self._checks: list[object] = []  # ids of calls of check.py without a result yet
        self.error = ""
        """The last error that the agent CLI reported."""
        self.usage = Usage(source="cli")
        """The usage that the agent CLI reported, added up."""
        self.misread = 0
        """Events on which the reader failed."""
        self._read = read
        self._file = path.open("wb", buffering=0)
        self._left = KEPT_BYTES

    def take(self, event: Event) -> None:
        """Read an event and keep its steps. OSError when the disk is full."""
        try:
            steps = [step for step in self._read(event) if step["kind"] in FIELDS and FIELDS[step["kind"]] <= step.keys()]
            counts = [step[name] for step in steps if step["kind"] == "usage" for name in FIELDS["usage"]]
            if not all(isinstance(count, int) and 0 <= count <= MOST_TOKENS for count in counts):
                raise ValueError("usage must be whole numbers")
            at_s = round(time.monotonic() - self.start_s, 3)
            lines = [json.dumps({"at_s": at_s, **step}, allow_nan=False) for step in steps]
        except READER_ERRORS:
            self.misread += 1
            return
        for step, line in zip(steps, lines, strict=True):
            self._note(step)
            self._keep(line.encode() + b"\n")

    def close(self) -> None:
        """Close the file; no step may follow."""
        self._file.close()

    def _note(self, step: Mapping[str, Any]) -> None:
        kind = step["kind"]
        if kind == "end":
            self.ended_s, self.ended_well = time.monotonic(), bool(step["ok"])
        elif kind in ("text", "thinking", "call"):
            self.ended_s, self.ended_well = None, False
        if kind == "usage":
            more = {name: getattr(self.usage, name) + step[name] for name in FIELDS["usage"]}
            self.usage = self.usage.model_copy(update=more | {"requests": self.usage.requests + 1})
        if kind == "error":
            self.error = str(step["text"])[: 8 * SHOWN]
        if kind == "call":
            self.calls += 1
            self.last = doing(step["tool"], step["input"])[: 8 * SHOWN]
            if "check.py" in self.last:
                self._checks = [*self._checks[1 - CHECKS_AT_ONCE :], step["id"]]
        elif kind == "result" and step["id"] in self._checks:
            self._checks.remove(step["id"])
            self.check = check_result(str(step["output"])) or self.check
        elif text := str(step.get("text") or ""):
            self.last = text[: 8 * SHOWN]

    def _keep(self, line: bytes) -> None:
        if len(line) > self._left >= 0:
            line, self._left = b'{"kind": "cut", "kept_bytes": %d}\n' % KEPT_BYTES, -1
        elif self._left < 0:
            return
        else:
            self._left -= len(line)
        self._file.write(line)
