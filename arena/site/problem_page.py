"""A problem's page: its facts, who reached what, and how that compares with libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from arena.results import fast_p
from arena.results.board import Reached, Row, Table, Trial
from arena.schema import BaselineLine, Curve, Passed, Problem, Profile, TimedShape
from arena.site import plots
from arena.site.axes import Plot
from arena.site.index_page import marks, shade
from arena.site.results import (
    Demonstration,
    Link,
    Results,
    columns,
    demonstration,
    problem_path,
    row_name,
    row_tags,
    run_path,
)

SPEEDS = (0.5, 1.0, 2.0)
"""The p of fast_p that the page shows; leaderboard.json has more, and every trial's speedup."""
MOST_CURVES = 12


class Listed(NamedTuple):
    """One trial in the table."""

    trial: Trial
    marks: str
    shade: int
    href: str
    minutes: float
    tokens: int | None


class Group(NamedTuple):
    """The trials of one row."""

    number: int
    name: str
    tags: Sequence[str]
    trials: Sequence[Listed]
    fast: Sequence[str]
    """fast_p against each baseline."""


class ProblemPage(NamedTuple):
    """One column of one table."""

    path: str
    hardware: str
    key: str
    demonstration: Demonstration | None
    profile: Profile
    problem: Problem | None
    """None where the problem of that digest is not installed."""
    tolerance: Sequence[tuple[str, float]]
    strips: plots.Strips
    roofline: Plot | None
    roof_device: str
    curve: Plot | None
    curve_names: Sequence[tuple[int, str, str]]
    """Colour, name and page of each line of that plot."""
    groups: Sequence[Group]
    baselines: Sequence[BaselineLine]
    compared: Sequence[BaselineLine]
    """Baselines against which fast_p is taken."""
    comparisons: Sequence[Link]
    """Of two runs each."""


def pages(results: Results, comparisons: Mapping[tuple[str, str], Sequence[Link]]) -> list[ProblemPage]:
    """A page for each column of each table. `comparisons`: by hardware and column."""
    return [
        _page(results, table, key, comparisons.get((table.hardware, key), []))
        for table in results.board.tables
        for key in columns(table)
    ]


def _page(results: Results, table: Table, key: str, comparisons: Sequence[Link]) -> ProblemPage:
    column, reached = columns(table)[key], next((found for found in table.reached if found.column == key), None)
    rows = [(number, row) for number, row in enumerate(table.rows, start=1) if key in row.entries]
    trials = [(row, trial) for _, row in rows for trial in row.entries[key].trials]
    passed = [(row, trial) for row, trial in trials if trial.outcome == "passed"]
    name = column.problem if column else reached.baselines.problem if reached else ""
    digest = column.digest if column else reached.baselines.problem_digest if reached else ""
    library_device = reached.baselines.device.name if reached and reached.baselines.device else ""
    best = max(passed, key=lambda pair: (pair[1].peak_fraction or 0.0, pair[1].run_id), default=None)
    roof, roof_device = _roofline(results, passed, best, reached)
    curves = [(row, trial.run_id) for row, trial in passed if trial.run_id in results.curves][:MOST_CURVES]
    lines: list[tuple[str, Curve]] = [(row_name(row), results.curves[run_id]) for row, run_id in curves]
    problem = results.problems.get((name, digest))
    compared = compared_lines(reached, imported=bool(problem and problem.imported))
    return ProblemPage(
        path=problem_path(table, key),
        hardware=table.hardware,
        key=key,
        demonstration=demonstration(table),
        profile="cpu" if table.hardware == "cpu" else "gpu",
        problem=problem,
        tolerance=_tolerance(results, trials, problem),
        strips=_strips([row for _, row in rows], key, reached),
        roofline=roof,
        roof_device=roof_device,
        curve=plots.best_so_far(lines),
        curve_names=[(at % 6, row_name(row), run_path(run_id)) for at, (row, run_id) in enumerate(curves)],
        groups=[_group(results, number, row, key, compared, library_device) for number, row in rows],
        baselines=reached.baselines.lines if reached else (),
        compared=compared,
        comparisons=comparisons,
    )


def compared_lines(reached: Reached | None, *, imported: bool) -> list[BaselineLine]:
    """Baselines with times and within the tolerance. KernelBench compares with tf32 too, whatever its error: so do imports."""
    lines = reached.baselines.lines if reached else ()
    return [line for line in lines if line.shapes and (line.verdict == "passed" or (imported and not line.reference))]


def _tolerance(results: Results, trials: Sequence[tuple[Row, Trial]], problem: Problem | None) -> list[tuple[str, float]]:
    known = [results.annotations[trial.run_id].score.tolerance for _, trial in trials]
    return list((known[0] if known else problem.tolerance if problem else {}).items())


def _strips(rows: Sequence[Row], key: str, reached: Reached | None) -> plots.Strips:
    strips, libraries = [], []
    for row in rows:
        marked = [
            (trial.peak_fraction, "agent" if trial.outcome == "passed" else "failed", f"{trial.peak_fraction:.4f} {trial.run_id}")
            for trial in row.entries[key].trials
            if trial.peak_fraction is not None
        ]
        strips.append(plots.Strip(row_name(row), marked))
    strips.sort(key=lambda strip: -max((value for value, kind, _ in strip.fractions if kind == "agent"), default=0.0))
    for line in reached.baselines.lines if reached else ():
        if line.fraction is not None:
            kind = "library" if line.verdict == "passed" else "rough"
            libraries.append(plots.Strip(f"library: {line.name}", [(line.fraction, kind, f"{line.fraction:.4f} {line.title}")]))
    return plots.strips(strips, libraries)


def _roofline(
    results: Results, passed: Sequence[tuple[Row, Trial]], best: tuple[Row, Trial] | None, reached: Reached | None
) -> tuple[Plot | None, str]:
    """The shapes of the rows' best trials and of the baselines, under the roof of the best trial's device."""
    top = results.annotations[best[1].run_id].score if best else None
    if best is None or not isinstance(top, Passed):
        return None, ""
    device, rate = top.device, top.shapes[0].rate
    shapes = []
    tops = {id(best[0]): best}
    for row, trial in sorted(passed, key=lambda pair: -(pair[1].peak_fraction or 0.0)):
        tops.setdefault(id(row), (row, trial))
    for row, trial in list(tops.values())[: plots.MOST_ROWS]:
        annotation = results.annotations[trial.run_id]
        if isinstance(annotation.score, Passed) and annotation.score.device.name == device.name:
            kind = "agent" if trial is best[1] else "other"
            for shape in annotation.score.shapes:
                if shape.rate == rate and (work := work_of(results, trial.run_id, shape)):
                    shapes.append(
                        plots.Timed(
                            f"{row_name(row)}, {sizes(shape.shape)}", "", *work, shape.measured_s, kind, run_path(trial.run_id)
                        )
                    )
    rates = {sizes(shape.shape): shape.rate for shape in top.shapes}
    measured = reached.baselines if reached else None
    for line in measured.lines if measured and measured.device and measured.device.name == device.name else ():
        for one in line.shapes:
            if (
                rates.get(sizes(one.shape)) == rate
                and one.flops is not None
                and one.bytes is not None
                and line.verdict == "passed"
            ):
                shapes.append(
                    plots.Timed(f"{line.name}, {sizes(one.shape)}", "", one.flops, one.bytes, one.measured_s, "library")
                )
    return plots.roofline(shapes, device, rate), device.name


def work_of(results: Results, run_id: str, shape: TimedShape) -> tuple[float, float] | None:
    """Operations and bytes of a timed shape, where they are known."""
    if shape.flops is not None and shape.bytes is not None:
        return shape.flops, shape.bytes
    return results.work(results.annotations[run_id], shape.shape)


def sizes(shape: object) -> str:
    """A shape on one line."""
    return " ".join(f"{name}={size}" for name, size in dict(shape).items())  # type: ignore[call-overload]


def _group(results: Results, number: int, row: Row, key: str, compared: Sequence[BaselineLine], device: str) -> Group:
    entry = row.entries[key]
    listed = []
    for trial in entry.trials:
        session = results.annotations[trial.run_id].session
        usage = session.usage
        tokens = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens if usage else None
        if usage and tokens is not None:
            tokens += usage.output_tokens + usage.reasoning_tokens
        step = shade(trial.peak_fraction) if trial.outcome == "passed" and trial.peak_fraction else 0
        listed.append(Listed(trial, marks(trial), step, run_path(trial.run_id), session.elapsed_s / 60, tokens))
    fast = []
    for line in compared:
        cell = fast_p.of_trials(entry.trials, results.annotations, line, device)
        known = [value for value in cell if value is not None]
        shares = " · ".join(f"{sum(value > p for value in known)}/{len(cell)}" for p in SPEEDS)
        fast.append(f"{shares} ({median(known):.2f}×)" if known else shares if cell else "no trial on its device")
    return Group(number, row_name(row), row_tags(row), listed, fast)
