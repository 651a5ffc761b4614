"""What trials took, beside what they reached: dollars and minutes, for each problem."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from arena.results.board import Row, Table
from arena.site import plots
from arena.site.axes import Plot
from arena.site.results import Results, columns, problem_path, row_name, run_path


class CostLine(NamedTuple):
    """One row, over all its trials."""

    number: int
    name: str
    trials: int
    passed: int
    cost_usd: float | None
    """The median trial's; None where no trial has a known cost."""
    unknown: int
    """Trials of an agent with a model whose cost is unknown."""
    per_passed_usd: float | None
    """All known dollars, divided by the trials that passed; None while a cost is unknown."""
    minutes: float
    sources: str
    """Where the costs come from."""


class CostPlots(NamedTuple):
    """One problem."""

    key: str
    href: str
    usd: Plot | None
    minutes: Plot | None
    unknown: int
    """Passed trials that the first plot lacks."""


class CostTable(NamedTuple):
    """One hardware."""

    hardware: str
    lines: Sequence[CostLine]
    plots: Sequence[CostPlots]
    left_out: int
    """Rows that the plots lack."""


def tables(results: Results) -> list[CostTable]:
    """One table for each hardware with a trial."""
    return [
        CostTable(
            hardware=table.hardware,
            lines=[_line(results, number, row) for number, row in enumerate(table.rows, start=1)],
            plots=[_plots(results, table, key) for key in columns(table)],
            left_out=max(0, len(table.rows) - plots.MOST_ROWS),
        )
        for table in results.board.tables
        if table.rows
    ]


def _line(results: Results, number: int, row: Row) -> CostLine:
    trials = [trial for entry in row.entries.values() for trial in entry.trials]
    sessions = [results.annotations[trial.run_id].session for trial in trials]
    costs = [trial.cost_usd for trial in trials if trial.cost_usd is not None]
    unknown = sum(session.usage is not None and session.usage.cost_usd is None for session in sessions)
    passed = sum(entry.passed for entry in row.entries.values())
    sources = sorted({session.usage.cost_source for session in sessions if session.usage and session.usage.cost_source})
    return CostLine(
        number=number,
        name=row_name(row),
        trials=len(trials),
        passed=passed,
        cost_usd=median(costs) if costs else None,
        unknown=unknown,
        per_passed_usd=sum(costs) / passed if costs and passed and not unknown else None,
        minutes=median(session.elapsed_s / 60 for session in sessions),
        sources=", ".join(sources),
    )


def _plots(results: Results, table: Table, key: str) -> CostPlots:
    usd, minutes, unknown = list[plots.Spent](), list[plots.Spent](), 0
    for number, row in enumerate(table.rows[: plots.MOST_ROWS], start=1):
        for trial in row.entries[key].trials if key in row.entries else ():
            if trial.outcome != "passed" or trial.peak_fraction is None:
                continue
            session = results.annotations[trial.run_id].session
            known = trial.peak_fraction, row_name(row), str(number), run_path(trial.run_id)
            minutes.append(plots.Spent(session.elapsed_s / 60, *known))
            if trial.cost_usd is not None and trial.cost_usd > 0:
                usd.append(plots.Spent(trial.cost_usd, *known))
            else:
                unknown += 1
    return CostPlots(
        key=key,
        href=problem_path(table, key),
        usd=plots.spending(usd, "USD", log=True),
        minutes=plots.spending(minutes, "minutes", log=False),
        unknown=unknown,
    )
