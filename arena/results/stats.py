"""`arena leaderboard --stats FILE`: every figure of the board with its inputs, for a reader's own tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from arena.results import gains
from arena.results.board import Board, Naive, Rank, Ratio, Row, Table
from arena.results.ranks import adjusted, tail
from arena.results.rows import alike, row_gains, row_name
from arena.results.statistics import DIGITS, LEVEL
from arena.schema import Record


class TrialGain(Record):
    """One counted trial."""

    run_id: str
    gain: float
    """log2; 0 of a failed one."""


class CellStats(Record):
    """One row at one problem."""

    column: str
    naive: Naive
    trials: tuple[TrialGain, ...]
    gain: Ratio


class RowStats(Record):
    """One row. Its other figures, and all trials with their outcomes, are in leaderboard.json at the same place."""

    row: str
    place: int
    """In the table's rows, from 0."""
    cells: tuple[CellStats, ...]
    gain: Ratio
    iqm: float
    """Mean of log2 of the gain of the middle half of all counted trials."""
    rank: Rank | None


class PairStats(Record):
    """Two rows that are ranked together, by their places."""

    left: int
    right: int
    gain: Ratio
    """Left over right."""
    p: float
    """On these problems, on both sides, by the variance of trials exchanged within their problems."""
    p_of_all: float
    """The same by Holm over all pairs that are ranked together."""
    apart: bool
    """By Holm, or by a line between their groups."""
    wins: float
    """The chance that a trial of the left row has more gain than one of the right, by the problems' mean; equal ones are half."""


class TableStats(Record):
    """All on one kind of hardware."""

    hardware: str
    rows: tuple[RowStats, ...]
    pairs: tuple[PairStats, ...]


class Stats(Record):
    """The file of --stats."""

    schema_version: Literal[1] = 1
    tables: tuple[TableStats, ...]


def stats(board: Board) -> Stats:
    """The figures behind the gains and ranks of a board."""
    return Stats(
        tables=tuple(
            TableStats(
                hardware=table.hardware,
                rows=tuple(_row(table, at, row, row.gain) for at, row in enumerate(table.rows) if row.gain),
                pairs=tuple(_pairs(table)),
            )
            for table in board.tables
        )
    )


def _row(table: Table, place: int, row: Row, gain: Ratio) -> RowStats:
    cells = []
    for column in row.over:
        entry, naive = row.entries[column], table.naive[column]
        found = [
            TrialGain(run_id=trial.run_id, gain=round(gains.gain(gains.number(trial), naive), DIGITS))
            for trial in gains.counted(entry.trials)
        ]
        assert entry.gain is not None  # `over` names columns with a gain
        cells.append(CellStats(column=column, naive=naive, trials=tuple(found), gain=entry.gain))
    ordered = sorted(each for cell in row_gains(row, table.naive) for each in cell)
    cut = len(ordered) // 4
    iqm = round(fmean(ordered[cut : len(ordered) - cut]), DIGITS)
    return RowStats(row=row_name(row), place=place, cells=tuple(cells), gain=gain, iqm=iqm, rank=row.rank)


def _pairs(table: Table) -> list[PairStats]:
    together: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for at, row in enumerate(table.rows):
        if row.rank:
            together[alike(row)].append(at)
    found = []
    for places in together.values():
        cells = {at: row_gains(table.rows[at], table.naive) for at in places}
        chances = {(a, b): 2 * tail(gains.apart(cells[a], cells[b])) for n, a in enumerate(places) for b in places[n + 1 :]}
        for (a, b), of_all in adjusted(chances).items():
            found.append(
                PairStats(
                    left=a,
                    right=b,
                    gain=gains.between(cells[a], cells[b]),
                    p=round(min(1.0, chances[a, b]), DIGITS),
                    p_of_all=round(of_all, DIGITS),
                    apart=of_all < 1 - LEVEL or _group(table.rows[a]) != _group(table.rows[b]),
                    wins=round(fmean(map(_wins, cells[a], cells[b])), DIGITS),
                )
            )
    return sorted(found, key=lambda pair: (pair.left, pair.right))


def _group(row: Row) -> int:
    return row.rank.group if row.rank else 0


def _wins(left: Sequence[float], right: Sequence[float]) -> float:
    return fmean((a > b) + (a == b) / 2 for a in left for b in right)
