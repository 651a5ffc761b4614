"""All that the pages are made from, read once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from arena import catalog
from arena.errors import DataError
from arena.results import annotations as annotation_files
from arena.results import baselines as baseline_files
from arena.results import curves as curve_files
from arena.results import leaderboard
from arena.results.board import Board, Column, Row, Table, Trial, asked_words
from arena.schema import Annotation, Baselines, Curve, Device, Passed, Problem

Shown = Literal["all", "public", "none"]
"""Whose transcript and source get pages: every run's, those that a person reviewed, or none."""
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,220}")
"""What may name a file of the site."""


class Link(NamedTuple):
    """To a page of the site."""

    path: str
    title: str


class Demonstration(NamedTuple):
    """What the pages say of a table in which every row is a built-in agent."""

    brief: bool
    """Whether some score was timed in brief."""


class Place(NamedTuple):
    """Where the tables have a run."""

    table: Table
    key: str
    row: Row
    trial: Trial


@dataclass(frozen=True)
class Results:
    """Records of one results home."""

    annotations: Mapping[str, Annotation]
    """By run id."""
    baselines: tuple[Baselines, ...]
    curves: Mapping[str, Curve]
    """By run id."""
    workspaces: Path
    shown: Shown = "public"
    source: bool = True
    """Whether solutions and their changes get pages."""

    @cached_property
    def board(self) -> Board:
        """The leaderboard, which decides outcomes, order and what counts."""
        return leaderboard.build(self.annotations.values(), self.baselines)

    @cached_property
    def places(self) -> Mapping[str, Place]:
        """Each run's place on the board, by run id."""
        return {
            trial.run_id: Place(table, key, row, trial)
            for table in self.board.tables
            for row in table.rows
            for key, entry in row.entries.items()
            for trial in entry.trials
        }

    @cached_property
    def problems(self) -> Mapping[tuple[str, str], Problem]:
        """The installed problems, by name and digest."""
        names = {annotation.cell.problem for annotation in self.annotations.values()} | {b.problem for b in self.baselines}
        return {(name, catalog.problem_digest(name)): found for name, found in catalog.problems().items() if name in names}

    def shows_files(self, run_id: str) -> bool:
        """Whether the run's transcript and source get pages."""
        chosen = self.shown == "all" or (self.shown == "public" and self.annotations[run_id].review is not None)
        folder = self.workspaces / run_id
        return chosen and folder.is_dir() and not folder.is_symlink()

    def work(self, annotation: Annotation, shape: Mapping[str, int]) -> tuple[float, float] | None:
        """Operations and bytes of a shape in an old record, by the formulas of the same problem, where it is installed."""
        problem = self.problems.get((annotation.cell.problem, annotation.cell.problem_digest))
        return (problem.flops(shape), problem.bytes(shape)) if problem else None


def read(home: Mapping[str, Path], *, shown: Shown, source: bool, hardware: str | None = None) -> Results:
    """Read the records below the folders `annotations`, `baselines`, `curves` and `workspaces`. DataError."""
    kept = [a for a in annotation_files.read_all(home["annotations"]) if hardware in (None, a.cell.hardware)]
    for annotation in kept:
        check_run_id(annotation.run_id)
    return Results(
        annotations={annotation.run_id: annotation for annotation in kept},
        baselines=tuple(b for b in baseline_files.read_all(home["baselines"]) if hardware in (None, b.hardware)),
        curves={curve.run_id: curve for curve in curve_files.read_all(home["curves"])},
        workspaces=home["workspaces"],
        shown=shown,
        source=source,
    )


def check_run_id(run_id: str) -> None:
    """DataError for a run id that cannot name a page."""
    if not RUN_ID.fullmatch(run_id):
        raise DataError(f"run {run_id!r}: a run's id has letters, digits, `_`, `.` and `-` only, at most 221")


def row_name(row: Row) -> str:
    """A row in words."""
    return " · ".join((row.harness, row.model, *asked_words(row)))


def row_tags(row: Row) -> tuple[str, ...]:
    """What else sets a row apart."""
    tags = [f"{row.budget_s / 60:g} min"]
    if row.harness == "builtin":
        tags.append("built-in")
    if row.network != "sealed":
        tags.append(row.network)
    if row.unpinned:
        tags.append("unpinned")
    if row.without_backoff:
        tags.append("without back-off")
    if row.gpu_access == "leased":
        tags.append("shared GPUs, by turns")
    return tuple(tags)


def run_path(run_id: str) -> str:
    """The path of a run's page."""
    return f"r/{run_id}.html"


def problem_path(table: Table, key: str) -> str:
    """The path of the page of a problem's column. A key is `<problem> v<version>`, with a digest in brackets where needed."""
    return f"p/{table.hardware}/{re.sub(r'[()]', '', key).replace(' ', '-')}.html"


def columns(table: Table) -> dict[str, Column | None]:
    """The keys of all problems in a table; without a column where only baselines were measured."""
    keys: Iterable[str] = dict.fromkeys([*(c.key for c in table.columns), *(reached.column for reached in table.reached)])
    found = {column.key: column for column in table.columns}
    return {key: found.get(key) for key in sorted(keys)}


def device_of(annotation: Annotation) -> Device | None:
    """The device on which a run passed."""
    return annotation.score.device if isinstance(annotation.score, Passed) else None


def demonstration(table: Table) -> Demonstration | None:
    """None for a table with an agent, or without rows."""
    if not table.rows or any(row.harness != "builtin" for row in table.rows):
        return None
    return Demonstration(brief=any(trial.brief for row in table.rows for entry in row.entries.values() for trial in entry.trials))
