"""What a sweep will cost, and what its trials will be able to show: by the runs on record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from arena.results import leaderboard, statistics
from arena.results.board import Naive
from arena.schema import Annotation, Baselines, Cell, Sweep
from arena.sweep.grid import PlannedCell, Trial
from arena.sweep.progress import Problem


@dataclass(frozen=True)
class Shows:
    """The least differences of two rows of the leaderboard that such sweeps show in 80 % of cases."""

    problems: int
    """That every row of the sweep has."""
    ratio: float | None
    """Of their fractions given pass; None where one trial of a cell does not show how much it varies."""
    pass_difference: float
    """Of their pass rates, from 0 to 1."""
    spread: float
    """The standard deviation of log2 of a fraction within a cell."""
    measured: bool
    """Whether the spread is of runs on record, or assumed."""


def shows(sweep: Sweep, cells: Sequence[PlannedCell], records: Iterable[Annotation]) -> Shows | None:
    """None where the sweep has no two rows with a common problem, or several budgets, which do not compare."""
    rows: dict[tuple[object, ...], set[str]] = {}
    for cell in (planned.cell for planned in cells):
        rows.setdefault((cell.harness, cell.model, cell.effort, cell.turns, cell.profile, cell.provider), set()).add(cell.problem)
    budgets = {(planned.cell.budget_s, planned.cell.without_backoff) for planned in cells}
    common = set.intersection(*rows.values()) if len(rows) > 1 and len(budgets) == 1 else set()
    if not common:
        return None
    measured = statistics.spread(_fractions(records, cells[0].cell.hardware))
    spread = statistics.SPREAD if measured is None else measured
    return Shows(
        len(common),
        statistics.least_ratio(sweep.trials, len(common), spread),
        statistics.least_pass_difference(sweep.trials, len(common)),
        spread,
        measured is not None,
    )


def naive(records: Iterable[Annotation], stored: Iterable[Baselines], hardware: str) -> dict[Problem, Naive]:
    """The naive kernel of each state of a problem that has one there."""
    found: dict[Problem, Naive] = {}
    for table in (table for table in leaderboard.build(records, stored).tables if table.hardware == hardware):
        known = {column.key: (column.problem, column.version, column.digest) for column in table.columns}
        for reached in table.reached:
            known[reached.column] = (
                reached.baselines.problem,
                reached.baselines.problem_version,
                reached.baselines.problem_digest,
            )
        found |= {known[key]: each for key, each in table.naive.items()}
    return found


def _fractions(records: Iterable[Annotation], hardware: str) -> Iterable[list[float]]:
    """The fractions of the passed trials of each cell there, without built-in models, whose kernels are always the same."""
    rows = (row for table in leaderboard.build(records, []).tables if table.hardware == hardware for row in table.rows)
    for entry in (entry for row in rows if row.harness != "builtin" for entry in row.entries.values()):
        yield [trial.peak_fraction for trial in entry.trials if trial.outcome == "passed" and trial.peak_fraction]


def cost_usd(left: Sequence[Trial], records: Iterable[Annotation]) -> float | None:
    """USD that these trials will cost, by the median of each model's runs on record; None where one has none."""
    kept, total = list(records), 0.0
    for cell in (trial.planned.cell for trial in left if trial.planned.cell.route):
        cost = run_usd(cell, kept)
        if cost is None:
            return None
        total += cost
    return total


def run_usd(cell: Cell, records: Iterable[Annotation]) -> float | None:
    """USD that a run of this cell costs: the median of its model's runs on record; None where it has none."""
    usages = [kept.session.usage for kept in records if _asks_alike(kept.cell, cell)]
    known = [usage.cost_usd for usage in usages if usage and usage.cost_usd is not None]
    return median(known) if known else None


def _asks_alike(one: Cell, other: Cell) -> bool:
    return all(getattr(one, field) == getattr(other, field) for field in ("model", "effort", "turns", "profile"))
