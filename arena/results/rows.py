"""The rows of a table: the figures of each, its rank among those that measure the same, and their order.

Rows that measure the same stand together: agents before built-in models, sealed ones first, then where most trials are. Among
them ranked rows come first, then those that lack no problem, both by gain. Others follow by problems solved, then by the
geometric mean of their fractions.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean, geometric_mean
from statistics import median as middle
from typing import NamedTuple

from arena.results import gains, statistics
from arena.results.board import Column, Entry, Naive, Reach, Row, Table, Trial, asked_words
from arena.results.ranks import ranks

SAME = ("budget_s", "without_backoff", "network", "allowed")
"""Fields of a row in which two rows must be equal: otherwise they measure different things."""


REACHES = ("sealed", "allow", "unsealed")


class RowKey(NamedTuple):
    """The fields that set two rows apart, in the order in which rows of equal results are sorted."""

    harness: str
    model: str
    effort: str
    turns: int
    """0 where the harness takes no such number."""
    profile: bool
    route: str
    provider: tuple[str, ...]
    unpinned: bool
    budget_s: float
    without_backoff: bool
    harness_digest: str
    network: Reach
    allowed: tuple[str, ...]


def rows(
    trials: Mapping[RowKey, Mapping[str, Sequence[Trial]]], columns: Iterable[Column], naive: Mapping[str, Naive]
) -> tuple[Row, ...]:
    """Every row with its figures, in order. `trials` are keyed by `Column.key`, and so is `naive`."""
    newest = [column.key for column in columns if not column.superseded]
    found = [_row(row_key, by_column, newest, naive) for row_key, by_column in sorted(trials.items())]
    together: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for at, row in enumerate(found):
        together[alike(row)].append(at)
    agents = any(row.harness != "builtin" for row in found)
    ordered: list[Row] = []

    def place(kind: tuple[object, ...]) -> tuple[object, ...]:
        group = [found[at] for at in together[kind]]
        return kind[0], REACHES.index(group[0].network), -sum(row.counted for row in group), kind

    for kind in sorted(together, key=place):
        group = together[kind]
        most = _tried_by_most([found[at] for at in group], newest)
        for at in group:
            over = tuple(key for key in found[at].over if key in most)
            cells = [gains.gains(found[at].entries[key].trials, naive[key]) for key in over]
            gain = gains.over_naive(cells) if cells else None
            found[at] = found[at].model_copy(update={"problems": len(most), "over": over, "gain": gain})
        wanted = most & naive.keys()
        cells_of = {at: row_gains(found[at], naive) for at in group if wanted and wanted == {*found[at].over}}
        known = [at for at, cells in cells_of.items() if min(map(len, cells)) > 1]
        if len(known) > 1 and not (kind[0] and agents):
            for at, rank in zip(known, ranks([cells_of[at] for at in known]), strict=True):
                found[at] = found[at].model_copy(update={"rank": rank})
        means = {at: gains.mean(cells).value for at, cells in cells_of.items()}
        first = sorted(means, key=lambda at: (found[at].rank is None, -means[at]))
        others = [at for at in group if at not in means]
        # Sorting is stable: rows with equal results keep the order of their keys.
        others.sort(key=lambda at: _results(found[at], newest), reverse=True)
        ordered += [found[at] for at in (*first, *others)]
    return tuple(ordered)


def _tried_by_most(group: Sequence[Row], newest: Sequence[str]) -> set[str]:
    """Newest columns with a counted trial of more than half of the rows: a stray trial takes no rank from the others.

    All that some row tried where the rows have no such column in common.
    """
    count = Counter(key for row in group for key in newest if key in row.entries and row.entries[key].counted)
    return {key for key, rows in count.items() if 2 * rows > len(group)} or set(count)


def alike(row: Row) -> tuple[object, ...]:
    """Equal in rows that measure the same."""
    return (row.harness == "builtin", *(getattr(row, field) for field in SAME))


def row_name(row: Row) -> str:
    """The name by which a row is asked for."""
    return "@".join((f"{row.harness}/{row.model}", *asked_words(row)))


def of_runs(table: Table, run_ids: Collection[str]) -> Table:
    """The table with these runs alone. Its columns and naive kernels stay."""
    trials: dict[RowKey, dict[str, list[Trial]]] = {}
    for row in table.rows:
        values = {field: getattr(row, field) for field in RowKey._fields}
        key = RowKey(**values | {"effort": row.effort or "", "turns": row.turns or 0, "route": row.route or ""})
        mine = {column: [trial for trial in each.trials if trial.run_id in run_ids] for column, each in row.entries.items()}
        if found := {column: some for column, some in mine.items() if some}:
            trials[key] = found
    return table.model_copy(update={"rows": rows(trials, table.columns, table.naive)})


def row_gains(row: Row, naive: Mapping[str, Naive]) -> list[list[float]]:
    """log2 of the gain of each counted trial, problem by problem."""
    return [gains.gains(row.entries[key].trials, naive[key]) for key in row.over]


def seen(rows: Iterable[Row], naive: Mapping[str, Naive]) -> float | None:
    """The least ratio of gains that the trials of two ranked rows show with 80 %, by the mean of their variances."""
    variances = [gains.mean(row_gains(row, naive)).variance or 0.0 for row in rows if row.rank]
    return statistics.rounded(2 ** (statistics.ERRORS * math.sqrt(2 * fmean(variances)))) if any(variances) else None


def entry(trials: Sequence[Trial], naive: Naive | None) -> Entry:
    """The figures of one row at one problem."""
    numbers = gains.fractions(trials)
    counted = len(gains.counted(trials))
    kept = [naive.fraction * 2**gain for gain in gains.gains(trials, naive)] if naive else []
    return Entry(
        passed=len(numbers),
        counted=counted,
        success=statistics.success(len(numbers), counted),
        median=middle(numbers) if numbers else None,
        best=max(numbers, default=None),
        low=min(numbers, default=None),
        high=max(numbers, default=None),
        interval=statistics.median(numbers),
        pass_at=statistics.pass_at(len(numbers), counted),
        all_at=statistics.all_at(len(numbers), counted),
        best_at=statistics.best_at(kept),
        gain=gains.over_naive([gains.gains(trials, naive)]) if naive and counted else None,
        outcomes=dict(sorted(Counter(trial.outcome for trial in trials).items())),
        trials=tuple(trials),
    )


def _row(key: RowKey, trials: Mapping[str, Sequence[Trial]], newest: Collection[str], naive: Mapping[str, Naive]) -> Row:
    """The row as it is without its neighbours."""
    entries = {column: entry(group, naive.get(column)) for column, group in sorted(trials.items())}
    shown = [entries[column] for column in newest if column in entries]
    over = tuple(column for column in newest if column in naive and column in entries and entries[column].counted)
    costs = [trial.cost_usd for found in shown for trial in found.trials]
    cells = [gains.gains(entries[column].trials, naive[column]) for column in over]
    return Row(
        **key._asdict() | {"effort": key.effort or None, "turns": key.turns or None, "route": key.route or None},
        entries=entries,
        runs=len(costs),
        counted=sum(found.counted for found in shown),
        passed=sum(found.passed for found in shown),
        cost_usd=None if None in costs else round(sum(filter(None, costs)), statistics.DIGITS),
        gain=gains.over_naive(cells) if cells else None,
        over=over,
        problems=len(over),
        rank=None,
    )


def _results(row: Row, newest: Collection[str]) -> tuple[int, float]:
    """Problems solved in their newest version, then the geometric mean of their medians."""
    medians = [found.median for column, found in row.entries.items() if column in newest and found.median is not None]
    return len(medians), geometric_mean(medians) if medians else 0.0
