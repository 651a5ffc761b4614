"""What libraries reach: measured by the judge's method, never scored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import Field, model_validator

from arena.schema import version_1
from arena.schema.common import Errors, Name, Positive, Record
from arena.schema.score import Device, LaunchMode, Verdict


class BaselineShape(Record):
    """What a baseline reached on one shape."""

    shape: Mapping[str, int]
    fraction: float = Field(gt=0, le=1)
    """Of the ceiling."""
    ceiling_s: Positive
    measured_s: Positive
    launch_mode: LaunchMode
    error: Errors
    """On public inputs."""


class BaselineLine(Record):
    """One baseline: what it reached, or why it is absent."""

    name: Name
    """The file's stem."""
    title: str
    verdict: Verdict | None
    """The judge's verdict with nothing forbidden; only `passed` is within the tolerance. None where it was not run."""
    fraction: float | None = Field(default=None, gt=0, le=1)
    """Of the ceiling, the geometric mean over the shapes, as in a score. Without the verdict `passed` it is a speed and nothing
    more. None where there is none."""
    message: str = ""
    """Why it is absent or outside the tolerance, and the judge's message."""
    shapes: tuple[BaselineShape, ...] = ()
    error: Errors | None = None
    """The worst of all shapes, on public inputs."""

    @model_validator(mode="after")
    def _absent_says_why(self) -> BaselineLine:
        if self.verdict == "passed" and self.fraction is None:
            raise ValueError("fraction: what passed has one")
        if self.verdict != "passed" and not self.message:
            raise ValueError("message: must say why the baseline is absent or outside the tolerance")
        return self


class Baselines(Record):
    """`baselines/<hardware>/<problem>.yaml`: what libraries reach at a problem on one device. Plotted, never scored."""

    schema_version: Literal[2] = 2
    problem: Name
    problem_version: int
    problem_digest: str
    """sha256 over the problem's folder and the kit, as in a cell."""
    hardware: Name
    device: Device | None
    """None where no line was measured."""
    measured_at: datetime
    arena_version: str
    versions: Mapping[str, str]
    """Of torch, triton and what the lines need, as far as it is installed."""
    lines: tuple[BaselineLine, ...]

    @model_validator(mode="before")
    @classmethod
    def _read_version_1(cls, data: object) -> object:
        return version_1.baselines(data)
