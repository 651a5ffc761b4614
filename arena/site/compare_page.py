"""Two runs of one problem side by side: the best of each row beside the best of all, and any two that are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from arena.errors import UsageError
from arena.results.board import Reached, Row, Trial
from arena.results.run_folder import RunFolder
from arena.schema import Annotation, BaselineLine
from arena.site import plots
from arena.site.axes import Plot
from arena.site.changes import Change, change
from arena.site.problem_page import sizes
from arena.site.results import Demonstration, Place, Results, columns, demonstration, device_of, row_name, row_tags, run_path
from arena.site.run_page import ShapeLine, shape_lines, source_of

MOST_ROWS = 6
"""Rows of a problem whose best trials stand beside the best of all."""


class ShapePair(NamedTuple):
    """One shape, timed in both runs."""

    a: ShapeLine
    b: ShapeLine
    library_s: float | None
    """Of the best baseline within the tolerance."""


class ComparePage(NamedTuple):
    """Two runs of one problem on one hardware."""

    path: str
    places: tuple[Place, Place]
    demonstration: Demonstration | None
    names: tuple[str, str]
    tags: tuple[tuple[str, ...], tuple[str, ...]]
    """What else sets each one's row apart."""
    hrefs: tuple[str, str]
    runs: tuple[Annotation, Annotation]
    devices: tuple[str, str]
    """Their names; empty for a run that did not pass. Times of two devices have no ratio."""
    pairs: Sequence[ShapePair]
    library: str
    """The baseline's name; empty without one."""
    curve: Plot | None
    change: Change | None
    """From the second's solution to the first's; None where one of them is not shown."""


def chosen(results: Results, asked: Iterable[tuple[str, str]] = ()) -> list[tuple[Place, Place]]:
    """The pairs with a page: of each problem the best sealed trial beside the best of each further row, and those asked for.

    UsageError for two runs that are not of the same problem and hardware.
    """
    pairs = {}
    for one, other in (*_best_pairs(results), *asked):
        if missing := {one, other} - results.places.keys():
            raise UsageError(f"--compare: run {min(missing)} is not among the runs of these pages (--hardware leaves out others)")
        first, second = results.places[one], results.places[other]
        if (other, one) in pairs:
            continue
        if (first.table.hardware, first.key) != (second.table.hardware, second.key) or one == other:
            what = [f"{run_id} ({place.key}, {place.table.hardware})" for run_id, place in ((one, first), (other, second))]
            raise UsageError(f"--compare takes two runs of one problem on one hardware, not {' and '.join(what)}")
        pairs[one, other] = first, second
    return list(pairs.values())


def page(results: Results, first: Place, second: Place) -> ComparePage:
    """Two runs side by side."""
    ids = first.trial.run_id, second.trial.run_id
    runs = results.annotations[ids[0]], results.annotations[ids[1]]
    names = _names(first, second)
    reached = next((found for found in first.table.reached if found.column == first.key), None)
    devices = tuple(device.name if (device := device_of(run)) else "" for run in runs)
    library = _library(reached)
    times = {sizes(shape.shape): shape.measured_s for shape in library.shapes} if library else {}
    others = {line.sizes: line for line in shape_lines(results, runs[1])}
    pairs = [
        ShapePair(line, others[line.sizes], times.get(line.sizes))
        for line in shape_lines(results, runs[0])
        if line.sizes in others
    ]
    curves = [(name, results.curves[run_id]) for name, run_id in zip(names, ids, strict=True) if run_id in results.curves]
    return ComparePage(
        path=compare_path(first, second),
        places=(first, second),
        demonstration=demonstration(first.table),
        names=names,
        tags=(row_tags(first.row), row_tags(second.row)),
        hrefs=(run_path(ids[0]), run_path(ids[1])),
        runs=runs,
        devices=(devices[0], devices[1]),
        pairs=pairs,
        library=library.name if library else "",
        curve=plots.best_so_far(curves),
        change=_change(results, ids),
    )


def compare_path(first: Place, second: Place) -> str:
    """The path of the page of two runs."""
    return f"c/{first.trial.run_id}/{second.trial.run_id}.html"


def best_two(results: Results) -> dict[tuple[str, str], str]:
    """The page of the best two rows of each problem, by hardware and column; without an entry where there are no two."""
    found: dict[tuple[str, str], str] = {}
    for one, other in _best_pairs(results):
        first, second = results.places[one], results.places[other]
        found.setdefault((first.table.hardware, first.key), compare_path(first, second))
    return found


def compare_title(first: Place, second: Place) -> str:
    """The two names, for a link."""
    return " beside ".join(_names(first, second))


def _names(first: Place, second: Place) -> tuple[str, str]:
    """Their rows' names; of two trials of one row with the times of their starts."""
    names = row_name(first.row), row_name(second.row)
    if names[0] != names[1]:
        return names
    starts = [f"{place.trial.started_at:%Y-%m-%d %H:%M:%S}" for place in (first, second)]
    return f"{names[0]}, {starts[0]}", f"{names[1]}, {starts[1]}"


def _best_pairs(results: Results) -> list[tuple[str, str]]:
    found = []
    for table in results.board.tables:
        for key in columns(table):
            best = [trial for row in table.rows if row.network != "unsealed" and (trial := _best(row, key))]
            best.sort(key=lambda trial: (-(trial.peak_fraction or 0.0), trial.run_id))
            found += [(best[0].run_id, other.run_id) for other in best[1 : MOST_ROWS + 1]]
    return found


def _best(row: Row, key: str) -> Trial | None:
    trials = [trial for trial in row.entries[key].trials if trial.outcome == "passed"] if key in row.entries else []
    return max(trials, key=lambda trial: (trial.peak_fraction or 0.0, trial.run_id), default=None)


def _library(reached: Reached | None) -> BaselineLine | None:
    lines = [line for line in reached.baselines.lines if line.verdict == "passed" and line.shapes] if reached else []
    return max(lines, key=lambda line: (line.fraction or 0.0, line.name), default=None)


def _change(results: Results, ids: tuple[str, str]) -> Change | None:
    if not results.source or not all(results.shows_files(run_id) for run_id in ids):
        return None
    first, second = (source_of(RunFolder(results.workspaces / run_id)) for run_id in ids)
    if first is None or second is None:
        return None
    return change("From the second solution to the first", second, first, (ids[1], ids[0]))
