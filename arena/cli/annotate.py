"""`arena annotate`: a person's review of a run."""

import rich_click as click

from arena import paths, run_cell
from arena.cli import options
from arena.cli.console import data, safe, tell
from arena.cli.show import find_scored
from arena.plan import ready
from arena.results import annotations


@click.command()
@click.argument("run_id", metavar="RUN", shell_complete=options.runs_complete)
@click.option("--verdict", "-v", required=True, type=click.Choice(annotations.VERDICTS), help="Your verdict on the run.")
@click.option("--summary", "-s", required=True, metavar="TEXT", help="Say in one or two sentences what you found.")
@click.option(
    "--quote",
    "-q",
    "quotes",
    multiple=True,
    metavar="FILE:L1-L2",
    help="Quote these lines of a file in the run folder, word for word. Give one --label with each.",
)
@click.option("--label", "-l", "labels", multiple=True, metavar="TEXT", help="Say what the quote shows.")
@click.option("--implication", "-i", default="", metavar="TEXT", help="Say what follows for the score or the problem.")
@click.option(
    "--reviewer",
    "-r",
    default="",
    metavar="NAME",
    help="Give your name; a verdict that withdraws a number, or replaces such a one, needs it.",
)
@options.as_json
def annotate(
    run_id: str,
    verdict: str,
    summary: str,
    quotes: tuple[str, ...],
    labels: tuple[str, ...],
    implication: str,
    reviewer: str,
    as_json: bool,
) -> None:
    """Add your review to a run's annotation, or replace it. Nothing else in the annotation changes."""
    ready()
    found = find_scored(run_id, "can be reviewed")
    annotation = annotations.annotate(
        found,
        paths.workspaces() / found.stem,
        verdict=verdict,
        summary=summary,
        quotes=quotes,
        labels=labels,
        implication=implication,
        reviewer=reviewer,
    )
    run_cell.render()
    data(annotation) if as_json else tell(f"{safe(found)}: reviewed as {verdict}")
