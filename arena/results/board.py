"""Records of leaderboard.json: one table per hardware, its rows, and the trials behind each number."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, Protocol

from arena.schema import AgentStatus, Baselines, GpuAccess, Name, Record, RejectionVerdict, Review

Outcome = Literal["passed", RejectionVerdict, "withdrawn", "provider_error", "judge_failed", "bug"]
NOT_COUNTED: frozenset[Outcome] = frozenset({"provider_error", "judge_failed", "bug"})
"""Outcomes of runs that measured nothing."""
Reach = Literal["sealed", "allow", "unsealed"]
"""What an agent could reach: at most its model's gateway; also a list of hosts; whatever its machine could reach."""


class Asked(Protocol):
    """What a cell, a row or a record of the best number knows of the model's work."""

    @property
    def effort(self) -> str | None: ...
    @property
    def turns(self) -> int | None: ...
    @property
    def profile(self) -> bool: ...


def asked_words(asked: Asked) -> tuple[str, ...]:
    """What sets two cells of one model apart, in words: `high`, `5-turns`, `profile`."""
    turns = f"{asked.turns}-turn{'s' if asked.turns != 1 else ''}" if asked.turns else ""
    return tuple(filter(None, (asked.effort, turns, "profile" if asked.profile else "")))


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
    brief: bool
    """Whether it was timed in brief, as in a demonstration."""
    review_suggested: bool
    message: str


class Interval(Record):
    """Where a figure lies, with the confidence `level`."""

    low: float
    high: float
    level: float


class Ratio(Record):
    """How many times larger one figure is than another, as the geometric mean over problems of equal weight."""

    value: float
    problems: int
    on_these: Interval | None
    """On these problems: the noise of the trials alone. None where some cell has one trial only, or no trial differs."""
    on_others: Interval | None
    """On problems like these: the differences between problems too. None for fewer than three problems."""


class Naive(Record):
    """The naive kernel of one problem, which gains are measured from."""

    fraction: float
    source: Literal["runs", "naive", "eager"]
    """The median of the built-in model's runs; else the stored reference `naive`; else the baseline `eager`."""


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
    pass_at: Mapping[int, float]
    """By k: the chance that at least one of k trials passes. The same k, up to the number of trials, in the next two."""
    all_at: Mapping[int, float]
    """The chance that k trials all pass."""
    best_at: Mapping[int, float]
    """The mean of the best fraction of k trials, where a failed one leaves the naive kernel. Empty without a naive kernel."""
    gain: Ratio | None
    """Over the naive kernel. None without one, or where no trial counted."""
    outcomes: Mapping[Outcome, int]
    trials: tuple[Trial, ...]


class Rank(Record):
    """Where a row stands among those that measure the same, as surely as its trials show. On these problems alone."""

    best: int
    """1 + the rows that are certainly better."""
    worst: int
    """All rows less those that are certainly worse."""
    of: int
    """Rows that are ranked together."""
    group: int
    """From 1, the best. Every row of a group is certainly better than every row of the next one."""


class Row(Record):
    """What was tested: an agent, its model, its effort, its budget and its network."""

    harness: Name
    harness_digest: str
    model: str
    effort: str | None
    turns: int | None
    """Answers that the harness asked of the model, at most; None where the harness takes no such number."""
    profile: bool
    """Whether the harness showed the model profiles."""
    route: str | None
    """The route to the model; None for a built-in one."""
    provider: tuple[str, ...]
    """Providers that could answer, when the route is a broker."""
    unpinned: bool
    """Whether a broker was free to choose the provider."""
    budget_s: float
    without_backoff: bool
    """Whether the time during which the provider failed was added to the budget."""
    gpu_access: GpuAccess = "exclusive"
    network: Reach
    allowed: tuple[str, ...]
    """Hosts that the agent could reach, with network `allow`."""
    entries: Mapping[str, Entry]
    """Keyed by `Column.key`."""
    runs: int
    """All runs at the newest versions of the problems, as in the fields below."""
    counted: int
    passed: int
    cost_usd: float | None
    """Of all these runs together, those that do not count too. None when that of some run is unknown."""
    gain: Ratio | None
    """Over the naive kernel, a failed trial being no gain. None without a naive kernel."""
    over: tuple[str, ...]
    """Columns that the gain is over: those of `problems` with a naive kernel and a counted trial of this row."""
    problems: int
    """Newest columns that more than half of the rows measuring the same have tried: budget, back-off and network are equal, and
    both are agents or both built in."""
    rank: Rank | None
    """None where the row lacks a problem of those rows, or a second trial of one, or is the only such row; and for a built-in
    model beside agents."""


class Column(Record):
    """One problem, one version, one state of its files."""

    key: str
    problem: Name
    version: int
    digest: str
    superseded: bool = False
    """Whether the table has a newer version of the problem, or runs of this version with other files that began later. Then
    the column is in no figure but its own."""


class Best(Record):
    """The highest number of one problem that no review withdrew."""

    column: str
    harness: Name
    model: str
    effort: str | None
    turns: int | None
    profile: bool
    trial: Trial


class Reached(Record):
    """What libraries reach at one problem."""

    column: str
    """`Column.key` of the problem, also when no trial gives it a column."""
    baselines: Baselines


class Fast(Record):
    """How often what was tested is right and more than p times as fast as one library, over problems of equal weight."""

    row: int | None
    """The place in the table's rows, from 0. None for what is stored beside the baselines."""
    library: str
    """The stored library or solution; empty for a row."""
    against: str
    """The library's name."""
    outside: tuple[str, ...]
    """Columns where that library is not within the tolerance itself: a comparison with what would not pass."""
    fast_p: Mapping[str, float]
    """By p: the share with a speedup above it."""
    speedups: Mapping[str, tuple[float | None, ...]]
    """Of each counted trial on the library's device, by `Column.key`; None of a failed one. So any other p has its share, too."""


class Table(Record):
    """All results on one kind of hardware."""

    hardware: Name
    devices: tuple[str, ...]
    """Measured devices, each with the origin of its ceilings."""
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    best: tuple[Best, ...]
    seen: float | None
    """The least ratio of two ranked rows' gains that so many trials show with 80 %, in one comparison. None without ranks."""
    naive: Mapping[str, Naive]
    """Keyed by `Column.key`."""
    reached: tuple[Reached, ...] = ()
    fast: tuple[Fast, ...] = ()


class Board(Record):
    """leaderboard.json."""

    schema_version: Literal[3] = 3
    trials: int
    tables: tuple[Table, ...]
