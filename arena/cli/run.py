"""`arena run`: an agent at a problem, and its score."""

from __future__ import annotations

import rich_click as click

from arena import catalog, paths
from arena import run as run_
from arena.agents.model_access import pinned
from arena.agents.supervisor import Terms
from arena.cli import options
from arena.cli.console import data, safe, tell
from arena.cli.display import Display
from arena.cli.render import show_score, show_session
from arena.gateway.config import Caps
from arena.gateway.network import Network
from arena.schema import Annotation

SILENCE_S = 900.0
"""A build may take ten minutes without a word."""


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
@options.provider
@options.means
@click.option(
    "--login", is_flag=True, help="Use your subscription's login, copied into the sandbox: no gateway, nothing metered."
)
@click.option("--exclude-backoff", is_flag=True, help="The time for which the provider fails is added to the budget.")
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
    caps: Caps,
    patience_s: float,
    provider: tuple[str, ...],
    unpinned: bool,
    login: bool,
    exclude_backoff: bool,
    as_json: bool,
) -> None:
    """Run one cell: MODEL works on PROBLEM in the sandbox, and what it leaves is scored independently."""
    chosen = pinned(run_.with_effort(catalog.model(model), effort), provider, unpinned=unpinned)
    terms = Terms(options.seconds(budget), silence_s=SILENCE_S if chosen.model.route else None, without_backoff=exclude_backoff)
    problem, hardware = options.problem_on(problem_name, hardware_name, gpu)
    attempt = run_.attempt(
        chosen,
        problem,
        hardware,
        terms=terms,
        sandbox_name=sandbox_name,
        gpu=gpu,
        network=network,
        caps=caps,
        patience_s=patience_s,
        login=login,
    )
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
    show_session(session)
    show_score(annotation.score)
    tell(f"annotation  {safe(paths.annotations() / annotation.run_id)}.yaml")
    tell(f"leaderboard {safe(paths.leaderboard() / 'LEADERBOARD.md')}")


COMMANDS = (run,)
