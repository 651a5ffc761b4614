"""Two runs side by side: the best of a problem, and the best of another row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from arena.results.board import Reached, Row, Table, Trial
from arena.results.run_folder import RunFolder
from arena.schema import Annotation, BaselineLine
from arena.site import plots
from arena.site.axes import Plot
from arena.site.changes import Change, change
from arena.site.problem_page import sizes
from arena.site.results import Results, columns, device_of, row_name, run_path
from arena.site.run_page import ShapeLine, shape_lines, source_of


class ShapePair(NamedTuple):
    """One shape, timed in both runs."""

    a: ShapeLine
    b: ShapeLine
    library_s: float | None
    """Of the best baseline within the tolerance."""


class ComparePage(NamedTuple):
    """Two runs of one problem on one hardware."""

    path: str
    key: str
    hardware: str
    names: tuple[str, str]
    hrefs: tuple[str, str]
    runs: tuple[Annotation, Annotation]
    trials: tuple[Trial, Trial]
    devices: tuple[str, str]
    """Their names. Times of two devices have no ratio."""
    pairs: Sequence[ShapePair]
    library: str
    """The baseline's name; empty without one."""
    curve: Plot | None
    change: Change | None
    """From the second's solution to the first's; None where one of them is not shown."""


def pages(results: Results) -> list[ComparePage]:
    """For each problem the best sealed trial beside the best one of another row."""
    found = []
    for table in results.board.tables:
        for key in columns(table):
            best = [(row, trial) for row in table.rows if row.network != "unsealed" and (trial := _best(row, key))]
            best.sort(key=lambda pair: (-(pair[1].peak_fraction or 0.0), pair[1].run_id))
            if len(best) > 1:
                found.append(_page(results, table, key, best[0], best[1]))
    return found


def _best(row: Row, key: str) -> Trial | None:
    trials = [trial for trial in row.entries[key].trials if trial.outcome == "passed"] if key in row.entries else []
    return max(trials, key=lambda trial: (trial.peak_fraction or 0.0, trial.run_id), default=None)


def _page(results: Results, table: Table, key: str, one: tuple[Row, Trial], other: tuple[Row, Trial]) -> ComparePage:
    ids = one[1].run_id, other[1].run_id
    runs = results.annotations[ids[0]], results.annotations[ids[1]]
    names = row_name(one[0]), row_name(other[0])
    devices = tuple(device.name if (device := device_of(run)) else "" for run in runs)
    library = _library(next((found for found in table.reached if found.column == key), None))
    times = {sizes(shape.shape): shape.measured_s for shape in library.shapes} if library else {}
    second = {line.sizes: line for line in shape_lines(results, runs[1])}
    pairs = [
        ShapePair(line, second[line.sizes], times.get(line.sizes))
        for line in shape_lines(results, runs[0])
        if line.sizes in second
    ]
    curves = [(name, results.curves[run_id]) for name, run_id in zip(names, ids, strict=True) if run_id in results.curves]
    return ComparePage(
        path=f"c/{ids[0]}/{ids[1]}.html",
        key=key,
        hardware=table.hardware,
        names=names,
        hrefs=(run_path(ids[0]), run_path(ids[1])),
        runs=runs,
        trials=(one[1], other[1]),
        devices=(devices[0], devices[1]),
        pairs=pairs,
        library=library.name if library else "",
        curve=plots.best_so_far(curves),
        change=_change(results, ids),
    )


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
