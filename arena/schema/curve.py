"""The scores of a run's snapshots: when the run reached what. Shown beside a score, never one itself."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, model_validator

from arena.schema.common import Name, Record
from arena.schema.score import Verdict


class CurvePoint(Record):
    """One snapshot."""

    at_s: float = Field(ge=0)
    """Seconds since the session began."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    verdict: Verdict
    peak_fraction: float | None = Field(default=None, gt=0, le=1)
    """None without the verdict `passed`."""
    unsteady: bool = False
    message: str = ""

    @model_validator(mode="after")
    def _only_passed_has_a_number(self) -> CurvePoint:
        if (self.verdict == "passed") != (self.peak_fraction is not None):
            raise ValueError("peak_fraction: belongs to the verdict `passed`, and to no other")
        return self


class Curve(Record):
    """`curves/<run_id>.yaml`: snapshots of one run, scored apart with fewer processes. No part of a leaderboard."""

    schema_version: Literal[1] = 1
    run_id: str
    problem: Name
    problem_digest: str
    """sha256 over the problem's folder and the kit, as in a cell."""
    hardware: Name
    device: str
    """The measured device; empty where no snapshot passed."""
    processes: int = Field(ge=1)
    """Worker processes that timed each snapshot. A score has more."""
    snapshots: int = Field(ge=1)
    """Different snapshots of the run, of which `points` are some."""
    measured_at: datetime
    arena_version: str
    points: tuple[CurvePoint, ...] = Field(min_length=1)
    """Oldest first."""
