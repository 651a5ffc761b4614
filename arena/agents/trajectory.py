"""What an agent did, step by step and in one form for all harnesses: `trajectory.jsonl` in the run's folder.

A step is a JSON object with its `kind` and, beside the time, these fields:

    text, thinking   text
    call             id, tool, input      a tool that the agent uses
    result           id, output, ok       what came of it
    usage            input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens (disjoint)
    error            text, status         as the agent's program tells it; nothing is decided by it
    session          id                   under which the program keeps its own record
    end              ok, text             the agent is done; it was not, when another step follows

They come from `read(event)` of the harness's own Python file, which is given each JSON line of the program's output.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from arena.errors import DataError
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
"""Then the file says so and ends; the raw output is kept beside it."""
ODD = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RecursionError, TypeError, ValueError)
"""What a reader raises on an event that is not as its program writes them, as the agent can print anything; or by a slip."""
MOST = 1 << 40
"""Tokens in one usage."""


def reader(file: Path | None, terminal: Mapping[str, str] | None) -> Read:
    """The harness's own, else one that knows a terminal event by its keys and values. DataError when the file has no `read`."""
    if file is None:
        return lambda event: [_end(event)] if terminal and all(event.get(k) == v for k, v in terminal.items()) else []
    spec = importlib.util.spec_from_file_location(f"arena_harness_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    read: Read | None = getattr(module, "read", None)
    if read is None:
        raise DataError(f"{file}: there is no function `read`, which harnesses need that name this file under `events`")
    return read


def _end(event: Event) -> dict[str, Any]:
    return {"kind": "end", "ok": True, "text": str(event.get("text", ""))}


class Trajectory:
    """The steps of one session, written as they come. Events come from one thread; the rest may be read from any."""

    def __init__(self, path: Path, read: Read) -> None:
        self.ended_s: float | None = None
        """When the step `end` came that stands last, on the monotonic clock."""
        self.ended_well = False
        """What it said of itself."""
        self.last = ""
        """The last thing said or done, for a display."""
        self.error = ""
        """The last error that the program told of."""
        self.usage = Usage(source="cli")
        """What the program says that it used, added up."""
        self.misread = 0
        """Events on which the reader failed."""
        self._read = read
        self._began_s = time.monotonic()
        self._file = path.open("wb", buffering=0)
        self._left = KEPT_BYTES

    def take(self, event: Event) -> None:
        """Read an event and keep its steps. OSError when the disk is full."""
        try:
            steps = [step for step in self._read(event) if step["kind"] in FIELDS and FIELDS[step["kind"]] <= step.keys()]
            counts = [step[name] for step in steps if step["kind"] == "usage" for name in FIELDS["usage"]]
            if not all(isinstance(count, int) and 0 <= count <= MOST for count in counts):
                raise ValueError("usage is counted in whole numbers")
            at_s = round(time.monotonic() - self._began_s, 3)
            lines = [json.dumps({"at_s": at_s, **step}, allow_nan=False) for step in steps]
        except ODD:
            self.misread += 1
            return
        for step, line in zip(steps, lines, strict=True):
            self._note(step)
            self._keep(line.encode() + b"\n")

    def close(self) -> None:
        """No more steps."""
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
            self.error = str(step["text"])
        if said := str(step.get("text") or step.get("tool") or ""):
            self.last = said

    def _keep(self, line: bytes) -> None:
        if len(line) > self._left >= 0:
            line, self._left = b'{"kind": "cut", "kept_bytes": %d}\n' % KEPT_BYTES, -1
        elif self._left < 0:
            return
        else:
            self._left -= len(line)
        self._file.write(line)
