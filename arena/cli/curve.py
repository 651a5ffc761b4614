"""`arena curve`: the scores of a run's snapshots."""

import rich_click as click

from arena import curve, paths
from arena.cli import options
from arena.cli.console import Display, data, safe, tell, verdict
from arena.cli.show import find_scored
from arena.errors import JudgeError
from arena.plan import ready
from arena.results import annotations, curves
from arena.sandboxes.backends import backend


@click.command("curve")
@click.argument("run_id", metavar="RUN", shell_complete=options.runs_complete)
@click.option("--most", default=20, show_default=True, type=click.IntRange(1, 500), help="Score at most this many snapshots.")
@options.gpu
@options.sandbox
@options.as_json
@click.pass_context
def curve_(context: click.Context, run_id: str, most: int, gpu: int, sandbox_name: str, as_json: bool) -> None:
    """Score snapshots of RUN, to show on its page when it reached what. No leaderboard uses these numbers."""
    found = find_scored(run_id, "has a curve")
    ready()
    annotation, chosen = annotations.read(found), backend(sandbox_name)
    try:
        with Display() as display:
            made = curve.measure(annotation, paths.workspaces(), chosen, most=most, gpu=gpu, report=display.judging)
    except JudgeError as error:
        tell(f"[bold red]arena:[/] {safe(error)}; nothing was stored")
        context.exit(1)
    path = curves.write(paths.curves(), made)
    if as_json:
        data(made)
        return
    for point in made.points:
        number = f"{point.peak_fraction:.4f}" if point.peak_fraction is not None else "–"
        tell(f"{point.at_s:8.0f} s  {point.sha256[:8]}  {number:>6}  {verdict(point.verdict)}  {safe(point.message)}")
    tell(f"curve {safe(path)}")
