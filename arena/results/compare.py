"""What the trials of two rows let anybody say about each other: a pure function of one table of the leaderboard."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from statistics import fmean

from arena.errors import UsageError
from arena.files.documents import unknown
from arena.results import gains
from arena.results.board import Column, Entry, Interval, Ratio, Row, Table, asked_words
from arena.results.gains import Samples
from arena.results.rows import SAME, RowKey, row_name
from arena.results.statistics import DIGITS, ERRORS, LEVEL, rounded, success
from arena.schema import Record

DRAWS = 99_999
"""Of a permutation test: the least p is 0.00001."""


class Comparison(Record):
    """Two rows on the problems that both tried."""

    left: str
    right: str
    hardware: str
    problems: tuple[str, ...]
    counted: tuple[int, int]
    passed: tuple[int, int]
    pass_difference: Interval
    """Of the chance to pass, left less right, as the mean over problems of equal weight."""
    gain: Ratio | None
    """Over the naive kernel; None where no problem has a naive fraction."""
    given_pass: Ratio | None
    """Of the fractions of passed trials; None where no problem was solved by both."""
    p: float | None
    """That the rows differ in gain by chance alone, on these problems: a permutation test of trials within problems."""
    seen: float | None
    """The least ratio of gains that so many trials show with 80 %. None without an interval on these problems."""
    needed: int | None
    """Trials of each cell that would show the ratio found with 80 %. None where it is shown, or is 1."""


def has_row(table: Table, name: str) -> bool:
    """Whether some row is called so."""
    return any(name in _names(row) for row in table.rows)


def find_row(table: Table, name: str, budget_s: float | None = None) -> Row:
    """The row of that name: `harness/model@effort`, of which harness and effort may be left out. UsageError unless it is one."""
    rows = [row for row in table.rows if budget_s in (None, row.budget_s)]
    found = [row for row in rows if name in _names(row)]
    if not found:
        raise UsageError(f"{unknown('row', name, {known for row in rows for known in _names(row)})}, on {table.hardware}")
    if len(found) > 1:
        differ = [field for field in RowKey._fields if any(getattr(row, field) != getattr(found[0], field) for row in found[1:])]
        values = "; ".join(f"{field} {', '.join(str(getattr(row, field)) for row in found)}" for field in differ)
        raise UsageError(
            f"{len(found)} rows are called {name!r} on {table.hardware}, apart in {values}: add harness, effort or --budget"
        )
    return found[0]


def _names(row: Row) -> set[str]:
    asked = "".join(f"@{word}" for word in asked_words(row))
    return {f"{row.harness}/{row.model}{asked}", f"{row.model}{asked}", f"{row.harness}/{row.model}", row.model}


def compare(table: Table, left: Row, right: Row, problems: Sequence[str] = ()) -> Comparison:
    """Compare two rows on the newest versions of the problems that both tried, or on those named.

    UsageError when the rows measure different things, or share some of their runs, or no problem is left.
    """
    names = f"{row_name(left)} and {row_name(right)}"
    fields = [field for field in SAME if getattr(left, field) != getattr(right, field)]
    if fields:
        values = "; ".join(f"{field} ({getattr(left, field)} and {getattr(right, field)})" for field in fields)
        raise UsageError(f"{names} cannot be compared: they differ in {values}")
    if left.harness == right.harness and left.harness_digest != right.harness_digest:
        digests = f"{left.harness_digest[:8]} and {right.harness_digest[:8]}"
        raise UsageError(f"{names} cannot be compared: harness {left.harness} changed between them ({digests})")
    both_have, all_runs = _runs(left) & _runs(right), _runs(left) | _runs(right)
    if both_have and both_have != all_runs:
        raise UsageError(
            f"{names} cannot be compared: {len(both_have)} runs are in both, so their difference is not of two agents. "
            "Take the rows of two sweeps, or of two agents"
        )
    known = {column.problem for column in table.columns}
    if missing := set(problems) - known:
        raise UsageError(unknown("problem", min(missing), known))
    wanted = [column for column in table.columns if not column.superseded and column.problem in (problems or known)]
    columns = [column for column in wanted if _counted(left, column) and _counted(right, column)]
    if not columns:
        states = [column for column in table.columns if column.problem in (problems or known)]
        tried = [{column.problem for column in states if _counted(row, column)} for row in (left, right)]
        if both := sorted(tried[0] & tried[1]):
            why = "changed, to another version or digest, and they share no trial of the newest"
            raise UsageError(f"{names} cannot be compared: {', '.join(both)} {why}")
        raise UsageError(f"{names} have no counted trial at one problem in common on {table.hardware}")
    ours, theirs = ([row.entries[column.key] for column in columns] for row in (left, right))
    naive = [table.naive.get(column.key) for column in columns]
    measured = [(a.trials, b.trials, base) for a, b, base in zip(ours, theirs, naive, strict=True) if base]
    cells = ([gains.gains(a, base) for a, _, base in measured], [gains.gains(b, base) for _, b, base in measured])
    solved = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.passed and b.passed]
    difference = gains.mean(cells[0]).less(gains.mean(cells[1])) if measured else None
    p = _permuted(*cells, seed=_seed(ours, theirs)) if measured else None
    shown = p is not None and p < 1 - LEVEL
    return Comparison(
        left=row_name(left),
        right=row_name(right),
        hardware=table.hardware,
        problems=tuple(column.problem for column in columns),
        counted=(sum(entry.counted for entry in ours), sum(entry.counted for entry in theirs)),
        passed=(sum(entry.passed for entry in ours), sum(entry.passed for entry in theirs)),
        pass_difference=_pass_difference(ours, theirs),
        gain=gains.between(*cells) if measured else None,
        given_pass=gains.between([_logs(a) for a, _ in solved], [_logs(b) for _, b in solved]) if solved else None,
        p=p,
        seen=rounded(2 ** (ERRORS * difference.error)) if difference and difference.error else None,
        needed=_needed(difference, min(entry.counted for entry in (*ours, *theirs))) if difference and not shown else None,
    )


def _runs(row: Row) -> set[str]:
    return {trial.run_id for entry in row.entries.values() for trial in entry.trials}


def _counted(row: Row, column: Column) -> int:
    return row.entries[column.key].counted if column.key in row.entries else 0


def _logs(entry: Entry) -> list[float]:
    """log2 of the fraction of each passed trial."""
    return [math.log2(fraction) for fraction in gains.fractions(entry.trials)]


def _pass_difference(ours: Sequence[Entry], theirs: Sequence[Entry]) -> Interval:
    """Of the mean of the problems' differences of shares: Newcombe's limits of each, from Wilson's intervals, in quadrature.

    Problems have equal weight, so that more trials of an easy one favour no row.
    """
    value = below = above = 0.0
    for ours_, theirs_ in zip(ours, theirs, strict=True):
        a, b = success(ours_.passed, ours_.counted), success(theirs_.passed, theirs_.counted)
        assert a is not None and b is not None  # only problems that both tried are compared
        share, other = ours_.passed / ours_.counted, theirs_.passed / theirs_.counted
        value += share - other
        below += (share - a.low) ** 2 + (b.high - other) ** 2
        above += (a.high - share) ** 2 + (other - b.low) ** 2
    low, high = ((value + side) / len(ours) for side in (-math.sqrt(below), math.sqrt(above)))
    return Interval(low=round(low, DIGITS), high=round(high, DIGITS), level=LEVEL)


def _permuted(left: Samples, right: Samples, seed: int) -> float:
    """The share of permutations of trials within their problems that lie at least as far apart. The same trials give the same."""
    import numpy as np

    draws = np.random.default_rng(seed)
    found, total = 0.0, np.zeros(DRAWS)
    for a, b in zip(left, right, strict=True):
        pool = draws.permuted(np.tile(np.array([*a, *b]), (DRAWS, 1)), axis=1)
        total += pool[:, : len(a)].mean(axis=1) - pool[:, len(a) :].mean(axis=1)
        found += fmean(a) - fmean(b)
    far = int(np.count_nonzero(np.abs(total) >= abs(found) - 1e-9))
    return round((1 + far) / (1 + DRAWS), DIGITS + 1)


def _seed(ours: Sequence[Entry], theirs: Sequence[Entry]) -> int:
    """From the trials' names: the same records give the same p, in whatever order they were read."""
    names = sorted(trial.run_id for entry in (*ours, *theirs) for trial in entry.trials)
    return int.from_bytes(hashlib.sha256("\n".join(names).encode()).digest()[:8])


def _needed(difference: gains.Mean, trials: int) -> int | None:
    """Trials of each cell that would show this difference with 80 %, were the spread the same."""
    if not difference.error or not difference.value:
        return None
    return max(trials + 1, math.ceil(trials * (ERRORS * difference.error / difference.value) ** 2))
