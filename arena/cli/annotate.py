"""`arena annotate`: a person's review of a run."""

from pathlib import Path
from typing import get_args

import rich_click as click

from arena import paths, run_cell
from arena.cli import options
from arena.cli.console import data, safe, tell
from arena.cli.show import find
from arena.errors import UsageError
from arena.plan import ready
from arena.results import annotations
from arena.schema import Review


@click.command()
@click.argument("run_id", metavar="RUN")
@click.option(
    "--verdict",
    "-v",
    "word",
    required=True,
    type=click.Choice(get_args(Review.model_fields["verdict"].annotation)),
    help="What the run is.",
)
@click.option("--summary", "-s", required=True, metavar="TEXT", help="One or two sentences: what you found.")
@click.option(
    "--quote",
    "-q",
    "quotes",
    multiple=True,
    metavar="FILE:L1-L2",
    help="Lines of a file in the run's folder, copied word for word; each with a --label.",
)
@click.option("--label", "-l", "labels", multiple=True, metavar="TEXT", help="What the quote shows.")
@click.option("--implication", "-i", default="", metavar="TEXT", help="What follows for the score or the problem.")
@options.as_json
def annotate(
    run_id: str,
    word: str,
    summary: str,
    quotes: tuple[str, ...],
    labels: tuple[str, ...],
    implication: str,
    as_json: bool,
) -> None:
    """Add your review to a run's annotation, or replace it. The machine's part is not touched."""
    ready()
    found = find(run_id)
    if not isinstance(found, Path):
        raise UsageError(f"run {run_id} is {found.state}: it has no annotation to review")
    done = annotations.annotate(
        found,
        paths.workspaces() / run_id,
        verdict=word,
        summary=summary,
        quotes=quotes,
        labels=labels,
        implication=implication,
    )
    run_cell.render()
    data(done) if as_json else tell(f"{safe(found)}: reviewed as {word}")
