"""The record of a run and its review."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, model_validator

from arena.schema import version_1
from arena.schema.common import Record
from arena.schema.run import Cell, Session
from arena.schema.score import Score


class SubmissionRecord(Record):
    """The submission's digest and size; its bytes are in the run folder."""

    sha256: str
    bytes: int
    lines: int


class Quote(Record):
    """Verbatim lines of a file in the run folder."""

    file: str
    lines: tuple[int, int]
    text: str
    label: str


class Review(Record):
    """A person's verdict after reading the run."""

    verdict: Literal["clean", "rubric_leak", "reward_hack", "interesting", "bug"]
    summary: str = Field(min_length=1)
    quotes: tuple[Quote, ...] = ()
    implication: str = ""
    reviewed_at: datetime


class Annotation(Record):
    """`annotations/<run_id>.yaml`: the single source of every published number."""

    schema_version: Literal[2] = 2
    run_id: str
    arena_version: str
    cell: Cell
    session: Session
    submission: SubmissionRecord | None
    score: Score
    review: Review | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_version_1(cls, data: object) -> object:
        return version_1.annotation(data)
