"""What a run's folder holds, for people: the agent's steps, the states of the solution, the solution."""

from __future__ import annotations

from arena import paths
from arena.agents.snapshots import stored
from arena.cli.console import safe, tell
from arena.results import curves
from arena.results.run_folder import RunFolder
from arena.site import run_page, steps
from arena.site.changes import lines
from arena.site.text import shown

LINE_CHARACTERS = 160
"""Of a step's first line."""
OUTPUT_LINES = 12
"""Of a text or an output; `arena open` shows more."""


def show_steps(run: RunFolder, offset_s: float) -> None:
    """Print the agent's steps, with their results and the tokens used by then."""
    if not run.trajectory.is_file():
        tell("steps: its trajectory is not here")
        return
    snapshots = stored(run.snapshots) if run.snapshots.is_dir() else []
    found = steps.read(run.trajectory, snapshots, offset_s)
    tell(f"\n[bold]steps[/] {len(found.steps)}")
    for step in found.steps:
        first = " ".join(value.text for _, value in step.fields[:1]).replace("\n", " ")
        name = (step.title or step.kind).replace("\n", " ")
        end = "" if step.ok is None else f", {'ok' if step.ok else 'failed'} after {step.took_s:.1f} s"
        wrote = "".join(f", wrote snapshot {digest}" for digest in step.snapshots)
        tokens = "" if step.tokens is None else f", {step.tokens:,} tokens so far"
        tell(f"{step.at_s:8.1f} [bold]{safe(shown(name))}[/] {safe(shown(first, LINE_CHARACTERS))}{end}{wrote}{tokens}")
        if step.output is not None and step.output.text.strip():
            printed = shown(step.output.text).strip().split("\n")
            for line in printed[:OUTPUT_LINES]:
                tell(f"         {safe(line[:LINE_CHARACTERS])}")
            if len(printed) > OUTPUT_LINES:
                tell(f"         ... {len(printed) - OUTPUT_LINES} more lines")
    if found.left_out:
        tell(f"... {found.left_out:,} more lines in {safe(run.trajectory)}")


def show_snapshots(run: RunFolder) -> None:
    """Print the states of the solution, with what each was scored."""
    found = stored(run.snapshots) if run.snapshots.is_dir() else []
    file = paths.curves() / f"{run.run_id}.yaml"
    scored = {point.sha256[:8]: point for point in curves.read(file).points} if file.exists() else {}
    tell(f"\n[bold]snapshots[/] {len(found)}" + ("" if scored or not found else "; `arena curve` scores them"))
    for snapshot in found:
        digest = snapshot.path.stem.partition("_")[2]
        point = scored.get(digest)
        value = "" if point is None else f" {point.verdict}" if point.peak_fraction is None else f" {point.peak_fraction:.4f}"
        tell(f"{snapshot.at_s:8.1f} {digest}{value}")


def show_source(run: RunFolder) -> None:
    """Print the solution."""
    source = run_page.source_of(run)
    tell(f"\n[bold]{safe(run.solution)}[/]" if source is not None else "source: it left no solution here")
    for number, line in enumerate(lines((source or "").replace("\r\n", "\n")), start=1):
        tell(f"{number:5} {safe(shown(line))}")
