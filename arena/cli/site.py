"""`arena site`: the results as pages."""

from __future__ import annotations

from pathlib import Path

import rich_click as click

from arena import paths
from arena.cli import options
from arena.cli.console import data, safe, tell
from arena.cli.show import find_scored
from arena.errors import ArenaError, DataError, UsageError
from arena.site import build, results

SHOWN = click.Choice(["all", "public", "none"])


@click.command("site")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Write the pages into this folder instead of site/."
)
@click.option(
    "--runs",
    "shown",
    default="public",
    show_default=True,
    type=SHOWN,
    help="Whose transcript and solution to show: all runs of this machine, those with a review, or none.",
)
@click.option("--hardware", "hardware", metavar="NAME", help="Show the results of this hardware alone.")
@click.option("--no-source", is_flag=True, help="Leave out solutions and their changes. A transcript may still quote them.")
@click.option(
    "--compare",
    "compared",
    nargs=2,
    multiple=True,
    metavar="RUN RUN",
    shell_complete=options.runs_complete,
    help="Add a page with these two runs of one problem side by side. Repeat for more pairs. RUN is as in `arena show`.",
)
@options.as_json
@click.pass_context
def site(
    context: click.Context,
    out: Path | None,
    shown: results.Shown,
    hardware: str | None,
    no_source: bool,
    compared: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Render the results as static pages that open from the disk. The same records give the same bytes."""
    folder = out or paths.site()
    what = "has a page"
    pairs = [(find_scored(one, what).stem, find_scored(other, what).stem) for one, other in compared]
    found = read_results(shown, source=not no_source, hardware=hardware)
    try:
        files = build.build(found, folder, pairs)
    except (UsageError, DataError):
        raise
    except ArenaError as error:
        tell(f"[bold red]arena:[/] {safe(error)}")
        context.exit(1)
    data({"folder": str(folder), "files": files}) if as_json else tell(f"{len(files)} files: {safe(folder / 'index.html')}")


def read_results(shown: results.Shown, *, source: bool, hardware: str | None) -> results.Results:
    home = {"annotations": paths.annotations(), "baselines": paths.baselines(), "curves": paths.curves()}
    return results.read({**home, "workspaces": paths.workspaces()}, shown=shown, source=source, hardware=hardware)
