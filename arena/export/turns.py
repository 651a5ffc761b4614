"""A trajectory as turns: what the model said and called at once, with the results. ATIF and Inspect are both made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from arena.agents.snapshots import Stored
from arena.export.stored_run import TOKENS, Step

NOTES = ("error", "cut", "unreadable")
"""Kinds of steps that are no words of the model."""


@dataclass
class Call:
    """One tool call and its result."""

    id: str
    """Unique in the run: a repeated id has `#2`, `#3` ... behind it."""
    tool: str
    input: dict[str, Any]
    output: str | None = None
    """None when no result came."""
    ok: bool = True
    ended_s: float = 0.0


@dataclass
class Turn:
    """One turn of the model, or a note such as an error."""

    at_s: float
    text: str = ""
    thinking: str = ""
    calls: list[Call] = field(default_factory=list)
    usage: dict[str, int] | None = None
    """Tokens that the agent CLI reported here, in disjoint parts. Many report them once, at the end."""
    note: str = ""
    """The kind of a note; empty for a turn of the model."""
    status: int | None = None
    """Of an error."""
    strays: list[str] = field(default_factory=list)
    """Results of calls that no step announced."""
    snapshots: list[str] = field(default_factory=list)
    """First eight characters of the digests of the snapshots that came to be during this turn."""


def turns(steps: Iterable[Step], snapshots: Iterable[Stored] = (), offset_s: float = 0.0) -> list[Turn]:
    """The turns in order. A turn ends with its first result. `offset_s`: by how much the snapshots' clock is ahead."""
    found: list[Turn] = []
    waiting: dict[str, Call] = {}
    seen: Counter[str] = Counter()

    def turn(at_s: float, *, after_calls: bool = False) -> Turn:
        """The turn to add to: the last one, unless it is a note, has a result, or (for words) a call."""
        last = found[-1] if found else None
        closed = last is None or last.note or last.strays or any(call.output is not None for call in last.calls)
        if last is None or closed or (last.calls and not after_calls):
            found.append(last := Turn(at_s))
        return last

    for step in steps:
        kind, at_s = step["kind"], step["at_s"]
        if kind in ("text", "thinking"):
            into = turn(at_s)
            setattr(into, kind, getattr(into, kind) + step["text"])
        elif kind == "call":
            seen[step["id"]] += 1
            number = step["id"] if seen[step["id"]] == 1 else f"{step['id']}#{seen[step['id']]}"
            given = step["input"] if isinstance(step["input"], dict) else {"input": step["input"]}
            waiting[step["id"]] = Call(number, step["tool"], given)
            turn(at_s, after_calls=True).calls.append(waiting[step["id"]])
        elif kind == "result":
            if step["id"] in waiting:
                call = waiting.pop(step["id"])
                call.output, call.ok, call.ended_s = step["output"], step["ok"], at_s
            else:
                last = found[-1] if found and not found[-1].note else turn(at_s)
                last.strays.append(step["output"])
        elif kind == "usage":
            last = next((each for each in reversed(found) if not each.note), None) or turn(at_s)
            last.usage = {name: (last.usage or {}).get(name, 0) + step[name] for name in TOKENS}
        elif kind in NOTES:
            found.append(Turn(at_s, text=step["text"], note=kind, status=step.get("status")))
    _place(found, snapshots, offset_s)
    return found


def _place(found: list[Turn], snapshots: Iterable[Stored], offset_s: float) -> None:
    """Each snapshot at the last turn of the model that began before it."""
    for snapshot in snapshots:
        before = [each for each in found if not each.note and each.at_s <= snapshot.at_s - offset_s]
        if before:
            before[-1].snapshots.append(snapshot.path.stem.partition("_")[2])
