"""`arena site`: the results as pages, and `arena open`, one of them in a browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import rich_click as click

from arena import paths
from arena.cli import options
from arena.cli.console import data, safe, tell
from arena.cli.show import find_run
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
@options.as_json
@click.pass_context
def site(
    context: click.Context, out: Path | None, shown: results.Shown, hardware: str | None, no_source: bool, as_json: bool
) -> None:
    """Render the results as static pages that open from the disk. The same records give the same bytes."""
    folder = out or paths.site()
    found = _results(shown, source=not no_source, hardware=hardware)
    try:
        files = build.build(found, folder)
    except (UsageError, DataError):
        raise
    except ArenaError as error:
        tell(f"[bold red]arena:[/] {safe(error)}")
        context.exit(1)
    data({"folder": str(folder), "files": files}) if as_json else tell(f"{len(files)} files: {safe(folder / 'index.html')}")


@click.command("open")
@click.argument("run_id", metavar="RUN")
@click.pass_context
def open_(context: click.Context, run_id: str) -> None:
    """Render all runs of this machine for you alone, and open RUN's page in a browser. RUN is as in `arena show`."""
    found = find_run(run_id)
    if not isinstance(found, Path):
        raise UsageError(f"run {found.run.run_id} is {found.state}: only a run with an annotation has a page")
    folder = paths.workspaces() / ".site"
    build.build(_results("all", source=True, hardware=None), folder)
    page = folder / results.run_path(found.stem)
    tell(f"page {safe(page)}")
    if not webbrowser.open(page.as_uri()):
        tell("no browser was found: open that file yourself")


def _results(shown: results.Shown, *, source: bool, hardware: str | None) -> results.Results:
    home = {"annotations": paths.annotations(), "baselines": paths.baselines(), "curves": paths.curves()}
    return results.read({**home, "workspaces": paths.workspaces()}, shown=shown, source=source, hardware=hardware)
