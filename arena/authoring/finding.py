"""What `arena check` reports of a problem."""

from __future__ import annotations

from typing import Literal

from arena.schema import Errors, Record


class Finding(Record):
    """One thing that was checked."""

    kind: Literal["contract", "degenerate", "solution", "order", "repeat"]
    name: str
    ok: bool
    got: str
    detail: str = ""
    peak_fraction: float | None = None
    error: Errors | None = None
    """Worst error seen, where an answer was compared with the reference."""
    disturbed: tuple[str, ...] = ()
    """Why shapes were timed again."""
    input_class: str | None = None
    """The input class on which a solution was rejected."""


class Report(Record):
    """All findings of one problem."""

    problem: str
    hardware: str
    findings: tuple[Finding, ...]
