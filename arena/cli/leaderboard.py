"""`arena leaderboard`: render the leaderboard again."""

import rich_click as click

from arena import paths, run_cell
from arena.cli import options
from arena.cli.console import data, safe, tell
from arena.plan import ready
from arena.results import annotations, baselines, leaderboard


@click.command("leaderboard")
@options.as_json
def leaderboard_(as_json: bool) -> None:
    """Render leaderboard/ from annotations/ and baselines/. The same files give the same bytes."""
    ready()
    run_cell.render()
    if as_json:
        data(leaderboard.build(annotations.read_all(paths.annotations()), baselines.read_all(paths.baselines())))
    else:
        tell(f"rendered {safe(paths.leaderboard())}")
