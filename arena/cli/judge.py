"""`arena judge`: score a run whose session has ended."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import rich_click as click

from arena import paths
from arena.cli import options
from arena.cli.console import Display, data
from arena.cli.render import uncounted
from arena.cli.run import show_run
from arena.cli.show import find_run
from arena.results import run_folder
from arena.run_cell import judge_run
from arena.system import gpu_locks


@click.command()
@click.argument("run_id", metavar="RUN", shell_complete=options.runs_complete)
@click.option("--gpu", type=click.IntRange(0), metavar="N", help="Use the GPU with this CUDA index. Default: the run's own.")
@options.progress
@options.as_json
@click.pass_context
def judge(context: click.Context, run_id: str, gpu: int | None, as_json: bool) -> None:
    """Score the submission of a run that was interrupted in its judge, or whose judge failed. No agent is played again."""
    found = find_run(run_id)
    name = found.stem if isinstance(found, Path) else found.run.run_id
    state = run_folder.read_state(paths.workspaces(), name)
    with Display() as display:
        annotation = judge_run(state, gpu, display.show, hold=partial(gpu_locks.held_by, "arena judge"))
    data(annotation) if as_json else show_run(annotation)
    if uncounted(annotation):
        context.exit(1)
