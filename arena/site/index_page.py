"""The first page: a heatmap for each hardware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from statistics import median
from typing import NamedTuple

from arena.results.board import NOT_COUNTED, Entry, Row, Table, Trial
from arena.site.results import Demonstration, Results, columns, demonstration, problem_path, row_name, row_tags, run_path

SHADES = 10
MARKS = {"reward_hack": "†", "rubric_leak": "‡", "bug": "¶", "interesting": "§", "clean": "✓"}


class Cell(NamedTuple):
    """One row at one problem."""

    kind: str
    """`number`, `FAIL`, `ERR` or `none`."""
    value: float | None
    word: str
    detail: str
    marks: str
    shade: int
    href: str


class Head(NamedTuple):
    """One problem."""

    name: str
    version: str
    href: str


class Line(NamedTuple):
    """One row."""

    name: str
    tags: Sequence[str]
    cells: Sequence[Cell]
    solved: int
    tried: int
    cost_usd: float | None
    minutes: float | None
    last: str


class Heatmap(NamedTuple):
    """One hardware."""

    hardware: str
    devices: Sequence[str]
    heads: Sequence[Head]
    lines: Sequence[Line]
    best: Sequence[tuple[float, str] | None]
    """The best baseline within the tolerance at each problem."""
    beside: Sequence[str]
    """The page of the best two rows of each problem side by side; empty without one."""
    demonstration: Demonstration | None


def heatmaps(results: Results, comparisons: Mapping[tuple[str, str], str]) -> list[Heatmap]:
    """The tables, one for each hardware. `comparisons`: by hardware and column, the page of the best two rows."""
    return [_heatmap(table, results, comparisons) for table in results.board.tables]


def marks(trial: Trial) -> str:
    """The signs beside a trial's number, as in LEADERBOARD.md."""
    found = MARKS[trial.review.verdict] if trial.review else ""
    found += "?" if trial.review_suggested else ""
    found += "±" if trial.unsteady else ""
    found += "◔" if trial.brief else ""
    return found + ("◇" if trial.network not in ("none", "gateway") else "")


def shade(value: float) -> int:
    """The step of the blue scale, 1 to 10."""
    return max(1, min(SHADES, ceil(value * SHADES)))


def _heatmap(table: Table, results: Results, comparisons: Mapping[tuple[str, str], str]) -> Heatmap:
    keys = columns(table)
    best: dict[str, tuple[float, str]] = {}
    for reached in table.reached:
        for one in reached.baselines.lines:
            if one.verdict == "passed" and one.fraction is not None:
                best[reached.column] = max(best.get(reached.column, (0.0, "")), (one.fraction, one.name))
    lines = [_line(row, number, table, list(keys), results) for number, row in enumerate(table.rows, start=1)]
    return Heatmap(
        hardware=table.hardware,
        devices=table.devices,
        heads=[Head(key.partition(" ")[0], key.partition(" ")[2], problem_path(table, key)) for key in keys],
        lines=lines,
        best=[best.get(key) for key in keys],
        beside=[comparisons.get((table.hardware, key), "") for key in keys],
        demonstration=demonstration(table),
    )


def _line(row: Row, number: int, table: Table, keys: Sequence[str], results: Results) -> Line:
    newest = {column.key for column in table.columns if not column.superseded}
    trials = [trial for entry in row.entries.values() for trial in entry.trials]
    costs = [trial.cost_usd for trial in trials if trial.cost_usd is not None]
    minutes = [results.annotations[trial.run_id].session.elapsed_s / 60 for trial in trials]
    cells = [_cell(row.entries.get(key), f"{problem_path(table, key)}#row-{number}") for key in keys]
    return Line(
        name=row_name(row),
        tags=row_tags(row),
        cells=cells,
        solved=sum(key in newest and entry.passed > 0 for key, entry in row.entries.items()),
        tried=len(newest & row.entries.keys()),
        cost_usd=median(costs) if costs else None,
        minutes=median(minutes) if minutes else None,
        last=f"{max(trial.started_at for trial in trials):%Y-%m-%d}" if trials else "",
    )


def _cell(entry: Entry | None, group: str) -> Cell:
    if entry is None:
        return Cell("none", None, "", "", "", 0, "")
    href = run_path(entry.trials[0].run_id) if len(entry.trials) == 1 else group
    signs = "".join(dict.fromkeys(sign for trial in entry.trials for sign in marks(trial)))
    counted = f"{entry.passed}/{entry.counted}"
    if entry.median is not None and entry.low is not None and entry.high is not None:
        spread = f"{entry.low:.3f}–{entry.high:.3f} · {counted}" if entry.passed > 1 else counted
        return Cell("number", entry.median, f"{entry.median:.3f}", spread, signs, shade(entry.median), href)
    counted_outcomes = [outcome for outcome in entry.outcomes if outcome not in NOT_COUNTED]
    common = max(counted_outcomes or entry.outcomes, key=lambda outcome: entry.outcomes[outcome])
    kind = "ERR" if common in NOT_COUNTED else "FAIL"
    return Cell(kind, None, kind, f"{common} · {counted}", signs, 0, href)
