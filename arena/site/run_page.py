"""A run's pages: its result, and from its folder the solution, the changes between snapshots, and the transcript."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from arena.acceptable import MOST_BYTES
from arena.agents.snapshots import Stored, stored
from arena.errors import DataError
from arena.results.run_folder import RunFolder
from arena.schema import Annotation, Curve, Passed, TimedShape
from arena.site import plots, steps
from arena.site.axes import Plot
from arena.site.changes import Change, change
from arena.site.changes import lines as lines_of
from arena.site.problem_page import sizes, work_of
from arena.site.results import Results
from arena.submission import NoSubmission, read_regular

MOST_COMPARED_LINES = 20_000
"""Of all snapshots of a run together."""


class ShapeLine(NamedTuple):
    """One timed shape in the table."""

    number: int
    sizes: str
    timed: TimedShape
    fraction: float | None
    """None for a shape of the latency class."""
    gb_s: float | None
    gflop_s: float | None
    intensity: float | None
    windows: Sequence[Sequence[float]]
    """Of each process, the windows' places between the fastest of all (0) and one and a half times its time (1)."""


class Files(NamedTuple):
    """What the run's folder holds for readers."""

    source: str | None
    changes: Sequence[Change]
    snapshots: Sequence[Stored]
    steps: steps.Steps
    spent: Sequence[tuple[float, float]]
    """Seconds, and dollars by then."""


class RunPage(NamedTuple):
    """The result of one run."""

    annotation: Annotation
    passed: Passed | None
    brief: bool
    """Whether it was timed in brief."""
    shapes: Sequence[ShapeLine]
    roofline: Plot | None
    curve: Curve | None
    curve_plot: Plot | None
    files: Files | None
    tokens_plot: Plot | None
    cost_plot: Plot | None


def page(results: Results, annotation: Annotation) -> RunPage:
    """The page of one run, with its files where they are shown."""
    score = annotation.score
    passed = score if isinstance(score, Passed) else None
    files = read_files(results, annotation) if results.shows_files(annotation.run_id) else None
    curve = results.curves.get(annotation.run_id)
    lines = shape_lines(results, annotation)
    timed = []
    for line in lines:
        if line.fraction is not None and (work := work_of(results, annotation.run_id, line.timed)):
            timed.append(plots.Timed(line.sizes, str(line.number), *work, line.timed.measured_s, "agent"))
    return RunPage(
        annotation=annotation,
        passed=passed,
        brief=isinstance(annotation.score, Passed) and annotation.score.brief,
        shapes=lines,
        roofline=plots.roofline(timed, passed.device, passed.shapes[0].rate) if passed else None,
        curve=curve,
        curve_plot=plots.best_so_far([("this run", curve)], height=220) if curve else None,
        files=files,
        tokens_plot=plots.over_time(files.steps.tokens, "tokens") if files else None,
        cost_plot=plots.over_time(files.spent, "USD") if files else None,
    )


def shape_lines(results: Results, annotation: Annotation) -> list[ShapeLine]:
    """The timed shapes of a passed run, those of the latency class last."""
    if not isinstance(annotation.score, Passed):
        return []
    found = []
    scored = [(shape, shape.peak_fraction) for shape in annotation.score.shapes]
    for number, (shape, fraction) in enumerate([*scored, *((small, None) for small in annotation.score.latency)], start=1):
        work = work_of(results, annotation.run_id, shape)
        flops, bytes_ = work or (None, None)
        least = min((value for process in shape.samples_s for value in process), default=shape.measured_s)
        found.append(
            ShapeLine(
                number=number,
                sizes=sizes(shape.shape),
                timed=shape,
                fraction=fraction,
                gb_s=bytes_ / shape.measured_s / 1e9 if bytes_ else None,
                gflop_s=flops / shape.measured_s / 1e9 if flops else None,
                intensity=flops / bytes_ if flops and bytes_ else None,
                windows=[[min(1.0, 2 * (value / least - 1)) for value in process] for process in shape.samples_s[:6]],
            )
        )
    return found


def read_files(results: Results, annotation: Annotation) -> Files:
    """The run's files that readers see. No link is followed."""
    run = RunFolder(results.workspaces / annotation.run_id)
    there = run.snapshots.is_dir() and not run.snapshots.is_symlink()
    snapshots = [snapshot for snapshot in stored(run.snapshots) if not snapshot.path.is_symlink()] if there else []
    offset_s = annotation.session.clock_offset_s or 0.0
    found = (
        steps.read(run.trajectory, snapshots, offset_s)
        if run.trajectory.is_symlink() or run.trajectory.is_file()
        else steps.Steps((), 0, ())
    )
    changes = _changes(snapshots) if results.source else []
    return Files(
        source=source_of(run) if results.source else None,
        changes=changes,
        snapshots=snapshots,
        steps=found,
        spent=_spent(run.ledger) if run.ledger.is_symlink() or run.ledger.is_file() else [],
    )


def source_of(run: RunFolder) -> str | None:
    """The submission; None where there is none."""
    try:
        return read_regular(run.folder, run.solution.name, MOST_BYTES).decode(errors="replace")
    except NoSubmission:
        return None


def _changes(snapshots: Sequence[Stored]) -> list[Change]:
    found, lines = [], 0
    for before, after in pairwise(snapshots):
        texts = [one.path.read_bytes().decode(errors="replace") for one in (before, after)]
        lines += sum(len(lines_of(text)) for text in texts)
        names = before.path.stem.partition("_")[2], after.path.stem.partition("_")[2]
        title = f"{names[0]} → {names[1]}, after {after.at_s:.0f} s"
        if lines > MOST_COMPARED_LINES:
            found.append(
                Change(title, (), 0, 0, f"Not compared: {MOST_COMPARED_LINES:,} lines of this run are compared at most.")
            )
        else:
            found.append(change(title, texts[0], texts[1], names))
    return found


def _spent(ledger: Path) -> list[tuple[float, float]]:
    """What the requests had cost by each time, by the gateway's clock. Requests without a known cost add nothing. DataError."""
    total, found = 0.0, []
    try:
        kept = read_regular(ledger.parent, ledger.name, steps.FILE_BYTES)
    except NoSubmission as fault:
        raise DataError(f"{ledger}: {fault.reason}") from None
    for number, line in enumerate(kept.split(b"\n")[:-1], start=1):
        try:
            entry = json.loads(line)
            if entry.get("event") == "ended" and entry.get("cost_usd"):
                total += float(entry["cost_usd"])
                found.append((float(entry["s"]), total))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise DataError(f"{ledger}:{number}: is no line of a ledger, which the gateway writes: remove it") from None
    return found


def spent_by(spent: Sequence[tuple[float, float]], at_s: float) -> float | None:
    """Dollars by a time; None where no request had a cost by then."""
    place = bisect_right(spent, at_s, key=lambda pair: pair[0])
    return spent[place - 1][1] if place else None
