"""fast_p, KernelBench's figure: the share of kernels that are right and more than p times as fast as a baseline.

Shown beside peak_fraction, and in no figure of it. A failed trial is not right, so it counts as no kernel at any p.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from arena.results.board import NOT_COUNTED, Column, Fast, Reached, Row, Trial
from arena.results.statistics import rounded
from arena.schema import Annotation, BaselineLine, BaselineShape, Passed, TimedShape

SPEEDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The p that leaderboard.json has. Its speedups give the share of any other."""
Speedup = float | None
"""How many times as fast as the baseline; None of what is not right."""


def fast_p(cells: Iterable[Sequence[Speedup]], p: float) -> float | None:
    """The share of trials whose speedup is above `p`: the mean over a problem's trials, then over problems of equal weight.

    None where there is no trial. KernelBench's own has one trial a problem.
    """
    shares = [fmean(value is not None and value > p for value in cell) for cell in cells if cell]
    return fmean(shares) if shares else None


def speedup(baseline: Sequence[BaselineShape], measured: Sequence[TimedShape | BaselineShape]) -> Speedup:
    """The geometric mean over the shapes of the baseline's time divided by the measured one. None unless both have the same."""
    before, after = ({frozenset(one.shape.items()): one.measured_s for one in shapes} for shapes in (baseline, measured))
    if not after or before.keys() != after.keys():
        return None
    # Rounded here, so that the speedups of leaderboard.json give its own shares.
    return rounded(math.exp(math.fsum(math.log(before[shape] / after[shape]) for shape in after) / len(after)))


def against(reached: Iterable[Reached]) -> dict[str, dict[str, BaselineLine]]:
    """The libraries that were timed, by name and then by column: those outside the tolerance, too."""
    found: dict[str, dict[str, BaselineLine]] = {}
    for one in reached:
        for line in one.baselines.lines:
            if line.shapes and not line.reference:
                found.setdefault(line.name, {})[one.column] = line
    return found


def entry(
    baseline: str, lines: Mapping[str, BaselineLine], cells: Mapping[str, Sequence[Speedup]], *, row: int | None, library: str
) -> Fast | None:
    """The record of a row, or of a library, against one baseline; None where no trial can be compared."""
    known = {column: cell for column, cell in cells.items() if cell}
    if not known:
        return None
    shares = {f"{p:g}": fast_p(known.values(), p) or 0.0 for p in SPEEDS}
    return Fast(
        row=row,
        library=library,
        against=baseline,
        outside=tuple(column for column in known if lines[column].verdict != "passed"),
        fast_p={p: rounded(share) for p, share in shares.items()},
        speedups={column: tuple(cell) for column, cell in known.items()},
    )


def of_trials(
    trials: Iterable[Trial], annotations: Mapping[str, Annotation], line: BaselineLine, device: str
) -> tuple[Speedup, ...]:
    """The speedup of each counted trial over a line that was measured on a device of that name.

    A failed trial has no device, and counts beside each library. One that passed on another device is left out.
    """
    found = list[Speedup]()
    for trial in trials:
        score = annotations[trial.run_id].score
        if trial.outcome in NOT_COUNTED or (isinstance(score, Passed) and score.device.name != device):
            continue
        right = trial.outcome == "passed" and isinstance(score, Passed)
        found.append(speedup(line.shapes, score.shapes) if right and isinstance(score, Passed) else None)
    return tuple(found)


def rows(
    ordered: Sequence[Row], columns: Sequence[Column], reached: Sequence[Reached], annotations: Mapping[str, Annotation]
) -> list[Fast]:
    """Each row against each library, over the newest states of problems."""
    devices = {one.column: one.baselines.device.name for one in reached if one.baselines.device}
    newest = {column.key for column in columns if not column.superseded}
    found = []
    for place, row in enumerate(ordered):
        for baseline, lines in against(reached).items():
            cells = {
                column: of_trials(row.entries[column].trials, annotations, line, devices.get(column, ""))
                for column, line in lines.items()
                if column in row.entries and column in newest
            }
            found.append(entry(baseline, lines, cells, row=place, library=""))
    return [one for one in found if one]


def libraries(reached: Sequence[Reached]) -> list[Fast]:
    """What is stored of each problem, libraries and its own solutions, against each library: one trial a problem."""
    known = against(reached)
    names = dict.fromkeys(line.name for one in reached for line in one.baselines.lines if line.verdict is not None)
    found = []
    for name in names:
        own = {one.column: line for one in reached for line in one.baselines.lines if line.name == name and line.verdict}
        for baseline, lines in known.items():
            if name == baseline:
                continue
            cells = {
                column: [speedup(lines[column].shapes, line.shapes) if line.verdict == "passed" else None]
                for column, line in own.items()
                if column in lines
            }
            found.append(entry(baseline, lines, cells, row=None, library=name))
    return [one for one in found if one]
