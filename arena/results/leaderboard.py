"""The published tables, a pure function of annotations and baselines: the same records give the same bytes.

A trial counts as passed, as a failure, or not at all:

    passed       a number, unless a review withdrew it
    failed       incorrect, forbidden, cheated, crashed, timed_out; missing (the agent left nothing to score);
                 a number that a review withdrew as reward_hack or rubric_leak
    not counted  provider_error, judge_failed, and what a review calls a bug of arena: nothing was measured

Trials are pooled only when everything in their cells is the same and their agents could reach the same; a problem or a harness
that changed stands apart. What an agent with an open network did is `unsealed`: shown, but never the best at a problem.
Baselines stand in a table of their own, and no row, order or best knows of them.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

import jinja2

from arena.files import documents
from arena.results import plot
from arena.results.plot import Mark, Strip
from arena.schema import AgentStatus, Annotation, Baselines, Name, Passed, Record, Review

WITHDRAWN = frozenset({"reward_hack", "rubric_leak"})
TEMPLATE = Path(__file__).with_name("leaderboard.md.j2")

Outcome = Literal[
    "passed",
    "incorrect",
    "forbidden",
    "cheated",
    "crashed",
    "timed_out",
    "missing",
    "withdrawn",
    "provider_error",
    "judge_failed",
    "bug",
]
Reach = Literal["sealed", "allow", "unsealed"]
"""What an agent could reach: at most its model's gateway; a list of hosts; whatever the host of the run could."""
NOT_COUNTED = frozenset({"provider_error", "judge_failed", "bug"})


class Trial(Record):
    """One run as the tables use it."""

    run_id: str
    outcome: Outcome
    peak_fraction: float | None
    """None when there is no number; a withdrawn number stays here."""
    agent_status: AgentStatus
    network: str
    cost_usd: float | None
    """What the model's answers cost; None where nobody knows, and for an agent without a model."""
    started_at: datetime
    review: Review | None
    review_suggested: bool
    message: str


class Entry(Record):
    """One field of a table: the trials of one row at one problem."""

    passed: int
    counted: int
    """Trials that passed or failed; `outcomes` has the others too."""
    median: float | None
    """Of the passed trials' peak_fraction, as are best, low and high."""
    best: float | None
    low: float | None
    high: float | None
    outcomes: Mapping[Outcome, int]
    trials: tuple[Trial, ...]


class Row(Record):
    """What was tested: an agent, its model, its effort and its time."""

    harness: Name
    harness_digest: str
    model: str
    effort: str | None
    route: str | None
    """How the model was reached; None for a built-in one."""
    provider: tuple[str, ...]
    """Who could answer, where the route is a broker."""
    unpinned: bool
    """Whether a broker was free to choose who answers."""
    budget_s: float
    without_backoff: bool
    """Whether the time for which the provider failed was added to it."""
    network: Reach
    allowed: tuple[str, ...]
    """Hosts that it could reach, with network `allow`."""
    entries: Mapping[str, Entry]
    """By the column's key."""


class Column(Record):
    """One problem, one version, one state of its files."""

    key: str
    problem: Name
    version: int
    digest: str


class Best(Record):
    """The highest number that stands at one problem."""

    column: str
    harness: Name
    model: str
    effort: str | None
    trial: Trial


class Reached(Record):
    """What libraries reach at one problem."""

    column: str
    """Key of the column; of a problem that has none, its own."""
    baselines: Baselines


class Table(Record):
    """All results on one kind of hardware."""

    hardware: Name
    devices: tuple[str, ...]
    """Devices that were measured, with the origin of their ceilings."""
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    best: tuple[Best, ...]
    reached: tuple[Reached, ...] = ()


class Board(Record):
    """leaderboard.json."""

    schema_version: Literal[1] = 1
    trials: int
    tables: tuple[Table, ...]


class _Line(NamedTuple):
    harness: str
    model: str
    effort: str
    route: str
    provider: tuple[str, ...]
    unpinned: bool
    budget_s: float
    without_backoff: bool
    harness_digest: str
    network: Reach
    allowed: tuple[str, ...]


def write(folder: Path, annotations: Iterable[Annotation], baselines: Iterable[Baselines] = ()) -> None:
    """Render leaderboard.json, LEADERBOARD.md and a plot for each hardware into `folder`."""
    board = build(annotations, baselines)
    folder.mkdir(parents=True, exist_ok=True)
    documents.write_json(folder / "leaderboard.json", board)
    for table in board.tables:
        title = f"Fraction of the ceiling reached on {table.hardware}"
        documents.write_text(folder / f"{table.hardware}.svg", plot.plot(title, strips(table)))
    documents.write_text(folder / "LEADERBOARD.md", page(board))


def build(annotations: Iterable[Annotation], baselines: Iterable[Baselines] = ()) -> Board:
    """The tables, one for each hardware, in the order of their names."""
    groups: dict[str, list[Annotation]] = defaultdict(list)
    for annotation in sorted(annotations, key=lambda entry: entry.run_id):
        groups[annotation.cell.hardware].append(annotation)
    known: dict[str, list[Baselines]] = defaultdict(list)
    for record in sorted(baselines, key=lambda record: record.problem):
        known[record.hardware].append(record)
    tables = tuple(_table(hardware, groups[hardware], known[hardware]) for hardware in sorted({*groups, *known}))
    return Board(trials=sum(map(len, groups.values())), tables=tables)


def _table(hardware: str, annotations: Sequence[Annotation], baselines: Sequence[Baselines]) -> Table:
    columns = _columns(annotations)
    key_of = {(column.problem, column.version, column.digest): column.key for column in columns}
    fields: dict[_Line, dict[str, list[Trial]]] = defaultdict(lambda: defaultdict(list))
    for annotation in annotations:
        cell = annotation.cell
        fields[_line(annotation)][key_of[cell.problem, cell.problem_version, cell.problem_digest]].append(_trial(annotation))
    rows = [
        Row(
            harness=line.harness,
            harness_digest=line.harness_digest,
            model=line.model,
            effort=line.effort or None,
            route=line.route or None,
            provider=line.provider,
            unpinned=line.unpinned,
            budget_s=line.budget_s,
            without_backoff=line.without_backoff,
            network=line.network,
            allowed=line.allowed,
            entries={key: _entry(trials) for key, trials in sorted(found.items())},
        )
        for line, found in sorted(fields.items())
    ]
    devices = {
        f"{score.device.name} ({score.device.ceilings} ceilings)" for a in annotations if isinstance(score := a.score, Passed)
    }
    # Sorting is stable: rows with equal results stay in the order of their names.
    ordered = sorted(rows, key=lambda row: tuple(-figure for figure in _standing(row)))
    return Table(
        hardware=hardware,
        devices=tuple(sorted(devices)),
        columns=columns,
        rows=tuple(ordered),
        best=_best(columns, ordered),
        reached=tuple(Reached(column=_column_of(record, columns), baselines=record) for record in baselines),
    )


def _line(annotation: Annotation) -> _Line:
    """The row of a trial."""
    cell, session = annotation.cell, annotation.session
    reach: Reach = "unsealed" if session.unsealed else "allow" if session.network == "allow" else "sealed"
    allowed = tuple(sorted(set(session.allowed)))
    return _Line(
        cell.harness,
        cell.model,
        cell.effort or "",
        cell.route or "",
        cell.provider,
        session.unpinned,
        cell.budget_s,
        cell.without_backoff,
        cell.harness_digest,
        reach,
        allowed,
    )


def _columns(annotations: Sequence[Annotation]) -> tuple[Column, ...]:
    """One column for each state of a problem; the digest is in its key only where it is needed to tell two apart."""
    found = sorted({(a.cell.problem, a.cell.problem_version, a.cell.problem_digest) for a in annotations})
    states = Counter((problem, version) for problem, version, _ in found)
    return tuple(
        Column(
            key=f"{problem} v{version}" + (f" ({digest[:8]})" if states[problem, version] > 1 else ""),
            problem=problem,
            version=version,
            digest=digest,
        )
        for problem, version, digest in found
    )


def _column_of(record: Baselines, columns: Sequence[Column]) -> str:
    """The key of the column with this very state of the problem; another state's has the same name and tells its digest."""
    same = [column for column in columns if (column.problem, column.version) == (record.problem, record.problem_version)]
    for column in same:
        if column.digest == record.problem_digest:
            return column.key
    return f"{record.problem} v{record.problem_version}" + (f" ({record.problem_digest[:8]})" if same else "")


def _trial(annotation: Annotation) -> Trial:
    score, review = annotation.score, annotation.review
    return Trial(
        run_id=annotation.run_id,
        outcome=_outcome(annotation),
        peak_fraction=score.peak_fraction if isinstance(score, Passed) else None,
        agent_status=annotation.session.agent_status,
        network=annotation.session.network,
        cost_usd=annotation.session.usage.cost_usd if annotation.session.usage else None,
        started_at=annotation.session.started_at,
        review=review,
        review_suggested=isinstance(score, Passed) and score.review_suggested and review is None,
        message=score.message,
    )


def _outcome(annotation: Annotation) -> Outcome:
    if annotation.review and annotation.review.verdict == "bug":
        return "bug"
    # Cut short by a provider: whatever was left by then says nothing of the agent.
    if annotation.session.agent_status == "provider_error":
        return "provider_error"
    if annotation.score.verdict == "passed" and annotation.review and annotation.review.verdict in WITHDRAWN:
        return "withdrawn"
    return annotation.score.verdict


def _entry(trials: Sequence[Trial]) -> Entry:
    numbers = [trial.peak_fraction for trial in trials if trial.outcome == "passed" and trial.peak_fraction is not None]
    return Entry(
        passed=len(numbers),
        counted=sum(trial.outcome not in NOT_COUNTED for trial in trials),
        median=statistics.median(numbers) if numbers else None,
        best=max(numbers, default=None),
        low=min(numbers, default=None),
        high=max(numbers, default=None),
        outcomes=dict(sorted(Counter(trial.outcome for trial in trials).items())),
        trials=tuple(trials),
    )


def _standing(row: Row) -> tuple[int, float]:
    """Problems solved, then the geometric mean of their medians: the order of the rows, which is not shown as a rank."""
    medians = [entry.median for entry in row.entries.values() if entry.median is not None]
    return len(medians), statistics.geometric_mean(medians) if medians else 0.0


def _best(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[Best, ...]:
    best = []
    for column in columns:
        standing = [
            (trial.peak_fraction or 0.0, trial.run_id, row, trial)
            for row in rows
            if column.key in row.entries and row.network != "unsealed"
            for trial in row.entries[column.key].trials
            if trial.outcome == "passed"
        ]
        if standing:
            _, _, row, trial = min(standing, key=lambda item: (-item[0], item[1]))
            best.append(Best(column=column.key, harness=row.harness, model=row.model, effort=row.effort, trial=trial))
    return tuple(best)


def strips(table: Table) -> list[Strip]:
    """What the plot shows: medians of the sealed rows and the baselines that ran, by problem."""
    names = list(dict.fromkeys([*(column.key for column in table.columns), *(each.column for each in table.reached)]))
    agents: dict[str, list[Mark]] = defaultdict(list)
    for row in table.rows:
        for key, entry in row.entries.items():
            if entry.median is not None and row.network != "unsealed":
                agents[key].append(Mark(" ".join(filter(None, (row.harness, row.model, row.effort))), entry.median))
    lines = [(each.column, line) for each in table.reached for line in each.baselines.lines]
    found = [(key, Mark(line.name, line.fraction, line.verdict == "passed")) for key, line in lines if line.fraction is not None]
    return [Strip(name, agents[name], [mark for key, mark in found if key == name]) for name in names]


def page(board: Board) -> str:
    """LEADERBOARD.md."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["md"] = _escaped
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(board=board)


def _escaped(value: object) -> str:
    """Text on one line that Markdown shows as it is, also inside a table. Underscores within words mean nothing there."""
    text = re.sub(r"[\x00-\x1f\x7f-\x9f\s]+", " ", str(value))
    return re.sub(r"[\\`*\[\]|<>~#&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", text)
