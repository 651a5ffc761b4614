"""`arena run`: run one cell, and show its score."""

from __future__ import annotations

import rich_click as click

from arena import paths
from arena.cli import options
from arena.cli.console import Display, data, safe, tell
from arena.cli.render import show_score, show_session
from arena.gateway.config import Caps
from arena.gateway.network import Network
from arena.plan import plan
from arena.run_cell import run_cell
from arena.schema import Annotation


@click.command()
@options.problem
@click.option(
    "--model", "-m", default="oracle", show_default=True, metavar="M", help="A model (`arena list models`), or harness/model."
)
@options.hardware
@options.gpu
@click.option("--effort", metavar="E", help="Ask the model for this effort instead of the one in its harness.")
@click.option("--budget", default="45m", show_default=True, metavar="T", help="The agent's wall clock: 45m, 90s, 1.5h.")
@click.option("--trials", "-n", default=1, show_default=True, type=click.IntRange(1), help="Run the cell this many times.")
@options.sandbox
@options.network
@options.provider
@options.caps
@click.option(
    "--login", is_flag=True, help="Copy your subscription's login into the sandbox, and use no gateway: nothing is metered."
)
@click.option(
    "--exclude-backoff",
    is_flag=True,
    help="Add the time for which the provider fails, at most the budget again.",
)
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
    patience: str,
    provider: tuple[str, ...],
    unpinned: bool,
    login: bool,
    exclude_backoff: bool,
    as_json: bool,
) -> None:
    """Run one cell: MODEL works on PROBLEM in the sandbox, and the judge scores its solution.py independently."""
    spec = plan(
        problem_name,
        model,
        hardware=hardware_name,
        gpu=gpu,
        effort=effort,
        budget=budget,
        sandbox=sandbox_name,
        network=network,
        caps=caps,
        patience=patience,
        providers=provider,
        unpinned=unpinned,
        login=login,
        exclude_backoff=exclude_backoff,
    )
    options.say_hardware(hardware_name, spec.hardware, gpu)
    options.say_caps(spec.access.caps if spec.access else None)
    annotations = []
    for trial in range(1, trials + 1):
        cell = f"[bold]{safe(spec.selected.model_name)}[/] on [bold]{spec.problem.name}[/] ({safe(spec.hardware.title)})"
        tell(cell + (f", trial {trial} of {trials}" if trials > 1 else ""))
        with Display() as display:
            annotations.append(run_cell(spec, display.show))
        show_run(annotations[-1])
        if remedy := annotations[-1].session.account_fault:
            left = f"; the other {trials - trial} would end the same way and are left out" if trial < trials else ""
            tell(f"[bold]this run does not count{left}.[/] {safe(remedy)}")
            break
    if as_json:
        data(annotations)
    if any(annotation.score.verdict == "judge_failed" or annotation.session.account_fault for annotation in annotations):
        context.exit(1)


def show_run(annotation: Annotation) -> None:
    """Print how a run ended, its score, and where its files are."""
    session = annotation.session
    tell(f"agent {session.agent_status} after {session.elapsed_s:.1f} s: {safe(session.message)}")
    show_session(session)
    show_score(annotation.score)
    tell(f"annotation  {safe(paths.annotations() / annotation.run_id)}.yaml")
    tell(f"leaderboard {safe(paths.leaderboard() / 'LEADERBOARD.md')}")
