"""`arena show`: one run and its result."""

import difflib
from pathlib import Path

import rich_click as click

from arena import paths
from arena.cli import options, run_files
from arena.cli.console import answering, data, safe, tell
from arena.cli.render import show_score, show_session, usage_words
from arena.errors import UsageError
from arena.files import documents
from arena.gateway.model import ledger
from arena.results import annotations, run_folder
from arena.schema import Annotation

MOST_NAMED = 10
"""Runs that an error lists."""


@click.command()
@click.argument("run_id", metavar="RUN", shell_complete=options.runs_complete)
@click.option("--steps", "show_steps", is_flag=True, help="Show what the agent did, step by step.")
@click.option("--snapshots", "show_snapshots", is_flag=True, help="Show the states of the solution, with their curve.")
@click.option("--source", "show_source", is_flag=True, help="Show the solution.")
@options.as_json
def show(run_id: str, show_steps: bool, show_snapshots: bool, show_source: bool, as_json: bool) -> None:
    """Show one run: its cell, its end, its score and its review. RUN is its id, a unique beginning of it, or `latest`."""
    found = find_run(run_id)
    if as_json and (show_steps or show_snapshots or show_source):
        raise UsageError("--json prints the annotation: leave out --steps, --snapshots and --source")
    with answering(paged=show_steps or show_source):
        if isinstance(found, Path):
            annotation = annotations.read(found)
            data(annotation) if as_json else _show_annotation(annotation)
        else:
            annotation = None
            _show_unfinished(found, as_json)
        run = run_folder.RunFolder(paths.workspaces() / (found.stem if isinstance(found, Path) else found.run.run_id))
        offset_s = annotation.session.clock_offset_s if annotation else None
        if show_steps:
            run_files.show_steps(run, offset_s or 0.0)
        if show_snapshots:
            run_files.show_snapshots(run)
        if show_source:
            run_files.show_source(run)


def _show_unfinished(found: run_folder.RunState, as_json: bool) -> None:
    cell = found.cell.model_dump(mode="json") if found.cell else None
    events = run_folder.read_events(found.run) if found.run.events.exists() else []
    if as_json:
        data({"run_id": found.run.run_id, "state": found.state, "cell": cell, "events": events})
        return
    tell(f"[bold]{safe(found.run.run_id)}[/] {found.state}")
    for event in events:
        tell(f"{safe(event['at'])} {safe(event['kind'])}")
    if found.run.ledger.exists():
        tell(safe(usage_words(ledger.read(found.run.ledger))))
    tell(f"files {safe(found.run.folder)}")


def _show_annotation(annotation: Annotation) -> None:
    cell, session = annotation.cell, annotation.session
    tell(f"[bold]{safe(annotation.run_id)}[/]")
    effort = f", effort {safe(cell.effort)}" if cell.effort else ""
    effort += f", {cell.turns} turns{' with profiles' * cell.profile}" if cell.turns else ""
    tell(
        f"{safe(cell.model)} ({cell.harness}{effort}) on {cell.problem} v{cell.problem_version}, {cell.hardware}, "
        f"budget {cell.budget_s:g} s"
    )
    tell(
        f"agent {session.agent_status} after {session.elapsed_s:.1f} s, {session.events} events, "
        f"{session.snapshots} snapshots: {safe(session.message)}"
    )
    show_session(session)
    show_score(annotation.score)
    if review := annotation.review:
        tell(f"review {review.verdict}: {safe(review.summary)}")
        for quote in review.quotes:
            tell(f"  {safe(quote.file)}:{quote.lines[0]}-{quote.lines[1]} {safe(quote.label)}")
        if review.implication:
            tell(f"  {safe(review.implication)}")
    tell(f"files {safe(paths.workspaces() / annotation.run_id)}")


def find_run(run_id: str) -> Path | run_folder.RunState:
    """The annotation of a run, or its state when it has none. `run_id` may be a unique beginning, or `latest`."""
    annotated = {path.stem: path for path in paths.annotations().glob("*.yaml")}
    states = {entry.run.run_id: entry for entry in run_folder.list_runs(paths.workspaces())}
    known = sorted(annotated.keys() | states.keys())  # an id begins with the time of its start
    begun = known[-1:] if run_id == "latest" else [name for name in known if run_id and name.startswith(run_id)]
    name = run_id if run_id in known else begun[0] if len(begun) == 1 else None
    if name is None:
        near = begun[:MOST_NAMED] or difflib.get_close_matches(run_id, known, MOST_NAMED, cutoff=0)
        raise UsageError(documents.unknown("run", run_id, near))
    return annotated.get(name) or states[name]


def find_scored(run_id: str, what: str) -> Path:
    """The annotation of a run; UsageError `only a run with a score <what>` for one without."""
    found = find_run(run_id)
    if not isinstance(found, Path):
        raise UsageError(f"run {found.run.run_id} is {found.state}: only a run with a score {what}")
    return found
