"""`arena review`: the runs that want a look, one after the other, each with its evidence."""

import rich_click as click

from arena import paths, run_cell
from arena.cli import options, run_files
from arena.cli.console import answering, data, safe, tell
from arena.cli.render import show_score, show_session
from arena.errors import UsageError
from arena.plan import ready
from arena.results import annotations, desk, run_folder

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
            tell(f"stored as {verdict}: {safe(path)}")
            done += 1
    finally:  # also after Ctrl-C: what is stored counts
        if done:
            run_cell.render()
    tell(f"{done} of {len(found)} reviewed")


def _ask(one: desk.Wanted) -> str:
    """Show a run, then what the reviewer asks to see of it, and return the reviewer's choice."""
    annotation = one.annotation
    _name(one)
    show_session(annotation.session)
    show_score(annotation.score)
    run = run_folder.RunFolder(paths.workspaces() / annotation.run_id)
    here = run.folder.is_dir()
    tell(f"files {safe(run.folder)}" if here else "its files are not on this machine")
    looks = {
        "steps": lambda: run_files.show_steps(run, annotation.session.clock_offset_s or 0.0),
        "source": lambda: run_files.show_source(run),
    }
    choices = [*annotations.VERDICTS, SKIP, QUIT, *(looks if here else ())]
    if here:
        tell("steps shows what the agent did, source its solution")
    while (choice := click.prompt("Verdict", type=click.Choice(choices), default=SKIP, err=True)) in looks:
        with answering(paged=True):
            looks[choice]()
    return str(choice)


def _name(one: desk.Wanted) -> None:
    cell = one.annotation.cell
    tell(f"[bold]{safe(one.annotation.run_id)}[/] {safe(cell.model)} on {cell.problem}, {cell.hardware}")
    for reason in one.reasons:
        tell(f"  {safe(reason)}")
