"""`arena run`: an agent at a problem, and its score."""

from __future__ import annotations

import rich_click as click

from arena import catalog, paths
from arena import run as run_
from arena.cli import options
from arena.cli.display import Display
from arena.cli.output import data, safe, tell
from arena.cli.results import show_score
from arena.gateway import Network
from arena.schema import Annotation


@click.command()
@options.problem
@click.option(
    "--model", "-m", default="oracle", show_default=True, metavar="M", help="A model (`arena list models`), or harness/model."
)
@options.hardware
@options.gpu
@click.option("--effort", metavar="E", help="Ask the model for this effort instead of its own.")
@click.option("--budget", default="45m", show_default=True, metavar="T", help="The agent's wall clock: 45m, 90s, 1.5h.")
@click.option("--trials", "-n", default=1, show_default=True, type=click.IntRange(1), help="Independent attempts at the cell.")
@options.sandbox
@options.network
@options.as_json
@click.pass_context
def run(
    context: click.Context,
    problem_name: str,
    model: str,
    hardware_name: str | None,
    gpu: int,
    effort: str | None,
    budget: str,
    trials: int,
    sandbox_name: str,
    network: Network,
    as_json: bool,
) -> None:
    """Run one cell: MODEL works on PROBLEM in the sandbox, and what it leaves is scored independently."""
    chosen, budget_s = run_.with_effort(catalog.model(model), effort), options.seconds(budget)
    problem, hardware = options.problem_on(problem_name, hardware_name, gpu)
    attempt = run_.attempt(chosen, problem, hardware, budget_s=budget_s, sandbox_name=sandbox_name, gpu=gpu, network=network)
    options.say_hardware(hardware_name, hardware, gpu)
    done = []
    for trial in range(1, trials + 1):
        what = f"[bold]{safe(chosen.model_name)}[/] on [bold]{problem.name}[/] ({safe(hardware.title)})"
        tell(what + (f", trial {trial} of {trials}" if trials > 1 else ""))
        with Display() as display:
            done.append(run_.run(attempt, display.show))
        _summary(done[-1])
    if as_json:
        data(done)
    if any(annotation.score.verdict == "judge_failed" for annotation in done):
        context.exit(1)


def _summary(annotation: Annotation) -> None:
    session = annotation.session
    tell(f"agent {session.agent_status} after {session.elapsed_s:.1f} s: {safe(session.message)}")
    if session.unsealed:
        tell("[bold yellow]unsealed:[/] the agent had this machine's network, and the leaderboard keeps the run apart")
    show_score(annotation.score)
    tell(f"annotation  {safe(paths.annotations() / annotation.run_id)}.yaml")
    tell(f"leaderboard {safe(paths.leaderboard() / 'LEADERBOARD.md')}")


COMMANDS = (run,)
