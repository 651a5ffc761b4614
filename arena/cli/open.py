"""`arena open`: the page of one run, in a browser."""

from __future__ import annotations

import webbrowser

import rich_click as click

from arena import paths
from arena.cli import options
from arena.cli.console import safe, tell
from arena.cli.show import find_scored
from arena.cli.site import read_results
from arena.site import build, results


@click.command("open")
@click.argument("run_id", metavar="RUN", shell_complete=options.runs_complete)
@click.pass_context
def open_(context: click.Context, run_id: str) -> None:
    """Render all runs of this machine for you alone, and open RUN's page in a browser. RUN is as in `arena show`."""
    found = find_scored(run_id, "has a page")
    folder = paths.workspaces() / ".site"
    build.build(read_results("all", source=True, hardware=None), folder)
    page = folder / results.run_path(found.stem)
    tell(f"page {safe(page)}")
    if not webbrowser.open(page.as_uri()):
        tell("no browser was found: open that file yourself")
