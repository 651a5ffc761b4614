"""`arena review`: the runs that want a look, one after the other, each with its evidence."""

import rich_click as click

from arena import paths, run_cell
from arena.cli import options
from arena.cli.console import answering, data, safe, tell
from arena.cli.render import show_score, show_session
from arena.errors import UsageError
from arena.plan import ready
from arena.results import annotations, desk

SKIP, QUIT = "skip", "quit"


@click.command("review")
@click.option("--by", "reviewer", metavar="NAME", help="Review them now in your name: arena shows each and asks for a verdict.")
@options.as_json
def review(reviewer: str | None, as_json: bool) -> None:
    """List the runs without a review that want a look, and why. With --by, look at each and give your verdict."""
    found = desk.wanted(annotations.read_all(paths.annotations()))
    if reviewer is None:
        with answering():
            if as_json:
                data([{"run_id": one.annotation.run_id, "reasons": list(one.reasons)} for one in found])
                return
            for one in found:
                _name(one)
            if not found:
                tell("no run wants a look")
        return
    if as_json:
        raise UsageError("--by asks questions: leave out --json")
    if not reviewer.strip():
        raise UsageError("--by: give your name")
    ready()
    done = 0
    try:
        for number, one in enumerate(found, start=1):
            tell(f"[bold]{number} of {len(found)}[/]")
            verdict = _ask(one)
            if verdict == QUIT:
                break
            if verdict == SKIP:
                continue
            summary = ""
            while not summary.strip():
                summary = click.prompt("Your reason, in a sentence or two", default="", show_default=False, err=True)
            run_id = one.annotation.run_id
            path = paths.annotations() / f"{run_id}.yaml"
            annotations.annotate(path, paths.workspaces() / run_id, verdict=verdict, summary=summary, reviewer=reviewer)
            done += 1
    finally:  # also after Ctrl-C: what is stored counts
        if done:
            run_cell.render()
    tell(f"{done} of {len(found)} reviewed")


def _ask(one: desk.Wanted) -> str:
    """Show a run, and return the reviewer's choice."""
    annotation = one.annotation
    _name(one)
    show_session(annotation.session)
    show_score(annotation.score)
    folder = paths.workspaces() / annotation.run_id
    tell(f"files {safe(folder)}" if folder.is_dir() else "its files are not on this machine")
    tell(f"`arena show {safe(annotation.run_id)} --steps` shows what the agent did, and --source its solution")
    choice: str = click.prompt("Verdict", type=click.Choice([*annotations.VERDICTS, SKIP, QUIT]), default=SKIP, err=True)
    return choice


def _name(one: desk.Wanted) -> None:
    cell = one.annotation.cell
    tell(f"[bold]{safe(one.annotation.run_id)}[/] {safe(cell.model)} on {cell.problem}, {cell.hardware}")
    for reason in one.reasons:
        tell(f"  {safe(reason)}")
