"""Records of leaderboard.json: one table per hardware, its rows, and the trials behind each number."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from arena.schema import AgentStatus, Baselines, Name, Record, RejectionVerdict, Review

Outcome = Literal["passed", RejectionVerdict, "withdrawn", "provider_error", "judge_failed", "bug"]
Reach = Literal["sealed", "allow", "unsealed"]
"""What an agent could reach: at most its model's gateway; also a list of hosts; whatever its machine could reach."""


class Trial(Record):
    """One run, as the tables use it."""

    run_id: str
    outcome: Outcome
    peak_fraction: float | None
    """None when the run has no number. A withdrawn number stays here."""
    agent_status: AgentStatus
    network: str
    cost_usd: float | None
    """Cost of the model's answers. None when it is unknown, and for an agent without a model."""
    started_at: datetime
    review: Review | None
    unsteady: bool
    """Whether the timings of a scored shape lay too far apart."""
    review_suggested: bool
    message: str


class Interval(Record):
    """Where a figure lies, with the confidence `level`."""

    low: float
    high: float
    level: float


class Entry(Record):
    """One field of a table: the trials of one row at one problem."""

    passed: int
    counted: int
    """Trials that passed or failed. `outcomes` includes the others."""
    success: Interval | None
    """Of the chance that a trial passes. None where none counted."""
    median: float | None
    """Of the passed trials' peak_fraction. The same holds for best, low, high and interval."""
    best: float | None
    low: float | None
    high: float | None
    interval: Interval | None
    """Of the median of what such trials give. None for fewer than two."""
    outcomes: Mapping[Outcome, int]
    trials: tuple[Trial, ...]


class Row(Record):
    """What was tested: an agent, its model, its effort, its budget and its network."""

    harness: Name
    harness_digest: str
    model: str
    effort: str | None
    route: str | None
    """The route to the model; None for a built-in one."""
    provider: tuple[str, ...]
    """Providers that could answer, when the route is a broker."""
    unpinned: bool
    """Whether a broker was free to choose the provider."""
    budget_s: float
    without_backoff: bool
    """Whether the time during which the provider failed was added to the budget."""
    network: Reach
    allowed: tuple[str, ...]
    """Hosts that the agent could reach, with network `allow`."""
    entries: Mapping[str, Entry]
    """Keyed by `Column.key`."""


class Column(Record):
    """One problem, one version, one state of its files."""

    key: str
    problem: Name
    version: int
    digest: str
    superseded: bool = False
    """Whether the table has a newer version of the problem. Then the column does not affect the order of the rows."""


class Best(Record):
    """The highest number of one problem that no review withdrew."""

    column: str
    harness: Name
    model: str
    effort: str | None
    trial: Trial


class Reached(Record):
    """What libraries reach at one problem."""

    column: str
    """`Column.key` of the problem, also when no trial gives it a column."""
    baselines: Baselines


class Table(Record):
    """All results on one kind of hardware."""

    hardware: Name
    devices: tuple[str, ...]
    """Measured devices, each with the origin of its ceilings."""
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    best: tuple[Best, ...]
    reached: tuple[Reached, ...] = ()


class Board(Record):
    """leaderboard.json."""

    schema_version: Literal[2] = 2
    trials: int
    tables: tuple[Table, ...]
