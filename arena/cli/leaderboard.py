"""`arena leaderboard`: render the leaderboard again."""

from pathlib import Path

import rich_click as click

from arena import paths, run_cell
from arena.cli import options
from arena.cli.console import data, safe, tell
from arena.files import documents
from arena.plan import ready
from arena.results import annotations, baselines, leaderboard, stats


@click.command("leaderboard")
@click.option(
    "--stats",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the figures behind gains and ranks, with the runs that each is made of, as JSON.",
)
@options.as_json
def leaderboard_(file: Path | None, as_json: bool) -> None:
    """Render leaderboard/ from annotations/ and baselines/. The same files give the same bytes."""
    ready()
    run_cell.render()
    if not as_json:
        tell(f"rendered {safe(paths.leaderboard())}")
    if file or as_json:
        board = leaderboard.build(annotations.read_all(paths.annotations()), baselines.read_all(paths.baselines()))
        if file:
            documents.write_json(file, stats.stats(board))
        if as_json:
            data(board)
