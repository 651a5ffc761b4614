"""A run's `trajectory.jsonl` as steps for a reader: calls with their results, tokens so far, and the snapshots they wrote."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from arena.agents.snapshots import Stored
from arena.agents.trajectory import FIELDS
from arena.site.text import CHARACTERS
from arena.submission import NoSubmission, read_regular

FILE_BYTES = 80 << 20
"""Above the largest trajectory that arena keeps."""
MOST_STEPS = 100_000
MOST_FIELDS = 12
"""Inputs of one call that are kept."""
TOKENS = tuple(FIELDS["usage"])
OWN_KINDS = ("text", "thinking", "call", "result", "error", "end", "cut", "unreadable")


class Excerpt(NamedTuple):
    """The beginning of a text, as the agent wrote it."""

    text: str
    more: int
    """Characters left out."""


class Step(NamedTuple):
    """One thing that the agent did, with what came of it."""

    line: int
    """Of trajectory.jsonl, counted from 1."""
    at_s: float
    kind: str
    title: str
    """The tool of a call."""
    fields: tuple[tuple[str, Excerpt], ...]
    """The text, or the inputs of a call."""
    output: Excerpt | None = None
    """Of a call that has its result."""
    ok: bool | None = None
    took_s: float | None = None
    tokens: int | None = None
    """Tokens of the whole session by then, where the agent CLI reported usage after this step."""
    snapshots: tuple[str, ...] = ()
    """Digests of the snapshots that it wrote, their first eight characters."""


class Steps(NamedTuple):
    """What can be shown of one trajectory."""

    steps: tuple[Step, ...]
    left_out: int
    """Lines after the last one that is shown."""
    tokens: tuple[tuple[float, float], ...]
    """Seconds, and all tokens by then."""


def read(path: Path, snapshots: Iterable[Stored] = (), offset_s: float = 0.0) -> Steps:
    """The steps in a file; no link is followed. `offset_s`: by how much the snapshots' clock is ahead."""
    try:
        kept = read_regular(path.parent, path.name, FILE_BYTES)
    except NoSubmission as fault:
        return Steps((Step(1, 0.0, "unreadable", "", (("", _excerpt(fault.reason)),)),), 0, ())
    steps: list[Step] = []
    calls: dict[str, int] = {}
    wrote: dict[int, str] = {}
    tokens, used, left_out = 0, list[tuple[float, float]](), 0
    digests = {stored.path.stem.partition("_")[2] for stored in snapshots}
    for number, line in enumerate(io.BytesIO(kept), start=1):
        if len(steps) >= MOST_STEPS:
            left_out += 1
            continue
        data = _parsed(line)
        kind, at_s = str(data.get("kind")), _number(data.get("at_s"))
        if kind == "usage":
            tokens += int(sum(_number(data.get(name)) for name in TOKENS))
            used.append((at_s, tokens))
            if steps:
                steps[-1] = steps[-1]._replace(tokens=tokens)
        elif kind == "result" and (at := calls.pop(str(data.get("id")), None)) is not None:
            took_s = max(0.0, at_s - steps[at].at_s)
            steps[at] = steps[at]._replace(output=_excerpt(data.get("output")), ok=bool(data.get("ok")), took_s=took_s)
        elif kind in OWN_KINDS:
            if kind == "call":
                calls[str(data.get("id"))] = len(steps)
                if digest := _written(data.get("input"), digests):
                    wrote[len(steps)] = digest
            steps.append(_step(number, at_s, kind, data))
    return Steps(tuple(_with_snapshots(steps, wrote, snapshots, offset_s)), left_out, tuple(used))


def _parsed(line: bytes) -> Mapping[str, Any]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    return data if isinstance(data, dict) else {"kind": "unreadable", "text": line.decode(errors="replace")}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0.0


def _step(number: int, at_s: float, kind: str, data: Mapping[str, Any]) -> Step:
    if kind != "call":
        text = data.get("output") if kind == "result" else data.get("text") or data.get("kept_bytes")
        return Step(number, at_s, kind, "", (("", _excerpt(text)),))
    given = data.get("input")
    inputs = given if isinstance(given, dict) else {"input": given}
    fields = [(str(name)[:80], _excerpt(value)) for name, value in list(inputs.items())[:MOST_FIELDS]]
    if len(inputs) > MOST_FIELDS:
        fields.append(("more inputs", _excerpt(f"{len(inputs) - MOST_FIELDS}")))
    return Step(number, at_s, kind, str(data.get("tool"))[:80], tuple(fields))


def _excerpt(value: object) -> Excerpt:
    text = value if isinstance(value, str) else "" if value is None else _json(value)
    return Excerpt(text[:CHARACTERS], max(0, len(text) - CHARACTERS))


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:  # what could just be read is a little too deep to write
        return "[nested too deep to show]"


def _written(given: object, digests: set[str]) -> str | None:
    """The snapshot whose text is one of the inputs."""
    for value in given.values() if isinstance(given, dict) else ():
        if isinstance(value, str):
            digest = hashlib.sha256(value.encode(errors="replace")).hexdigest()[:8]
            if digest in digests:
                return digest
    return None


def _with_snapshots(steps: list[Step], wrote: Mapping[int, str], snapshots: Iterable[Stored], offset_s: float) -> list[Step]:
    """Each snapshot at the call that holds its text, else at the last call before it."""
    calls = [(step.at_s, at) for at, step in enumerate(steps) if step.kind == "call"]
    for stored in snapshots:
        digest, at_s = stored.path.stem.partition("_")[2], stored.at_s - offset_s
        before = [at for when_s, at in calls if when_s <= at_s]
        exact = [at for at in before if wrote.get(at) == digest]
        if place := (exact or before)[-1:]:
            step = steps[place[0]]
            steps[place[0]] = step._replace(snapshots=(*step.snapshots, digest))
    return steps
