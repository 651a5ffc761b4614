"""The speed of libraries: measured by the judge's method, never scored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import Field, model_validator

from arena.schema import version_1
from arena.schema.common import Errors, Name, Positive, Record
from arena.schema.score import Device, LaunchMode, Verdict


class BaselineShape(Record):
    """The speed of a baseline on one shape."""

    shape: Mapping[str, int]
    fraction: float = Field(gt=0, le=1)
    """Of the ceiling."""
    ceiling_s: Positive
    measured_s: Positive
    launch_mode: LaunchMode
    error: Errors
    """On public inputs."""


class BaselineLine(Record):
    """One baseline: its speed, or why it is absent."""

    name: Name
    """The file's stem."""
    title: str
    verdict: Verdict | None
    """The judge's verdict with nothing forbidden. Only `passed` is within the tolerance. None when it was not run."""
    fraction: float | None = Field(default=None, gt=0, le=1)
    """Of the ceiling, the geometric mean over the shapes, as in a score. Without the verdict `passed` it is only a speed. None
    when nothing was timed."""
    message: str = ""
    """Why it is absent or outside the tolerance, and the judge's message."""
    shapes: tuple[BaselineShape, ...] = ()
    error: Errors | None = None
    """The worst of all shapes, on public inputs."""

    @model_validator(mode="after")
    def _absent_says_why(self) -> BaselineLine:
        if self.verdict == "passed" and self.fraction is None:
            raise ValueError("fraction: a passed baseline needs one")
        if self.verdict != "passed" and not self.message:
            raise ValueError("message: must say why the baseline is absent or outside the tolerance")
        return self


class Baselines(Record):
    """`baselines/<hardware>/<problem>.yaml`: the speed of libraries on a problem and a device. Plotted, never scored."""

    schema_version: Literal[2] = 2
    problem: Name
    problem_version: int
    problem_digest: str
    """sha256 over the problem's folder and the kit, as in a cell."""
    hardware: Name
    device: Device | None
    """None when no line was measured."""
    measured_at: datetime
    arena_version: str
    versions: Mapping[str, str]
    """Of torch, triton and the packages that the lines need, if installed."""
    lines: tuple[BaselineLine, ...]

    @model_validator(mode="before")
    @classmethod
    def _read_version_1(cls, data: object) -> object:
        return version_1.baselines(data)
