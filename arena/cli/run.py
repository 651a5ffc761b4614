"""`arena run`: run one cell, and show its score."""

from __future__ import annotations

import secrets
import shlex
from datetime import UTC, datetime

import rich_click as click

from arena import paths
from arena.agents.run_spec import RunSpec
from arena.agents.supervisor import Activity, Progress
from arena.cli import options
from arena.cli.console import Display, answering, data, safe, tell
from arena.cli.render import show_score, show_session, uncounted
from arena.files import documents
from arena.gateway.config import Caps
from arena.gateway.egress.rules import private
from arena.gateway.network import Network
from arena.plan import plan
from arena.results import annotations as records
from arena.run_cell import rehearse, render, run_cell
from arena.schema import Annotation, GpuAccess, Grid, ModelChoice, Place, Retry, Sweep
from arena.sweep import forecast, grid, scheduler
from arena.sweep.node import OneMachine
from arena.sweep.scheduler import View
from arena.system import gpu_locks

REMEDIES = {
    "provider_error": "the provider failed, which says nothing about the agent. Run the cell again",
    "judge_failed": "the judge or the machine failed. `arena judge latest` scores the same submission again",
}
"""What to do about a run that does not count."""


@click.command()
@options.problem
@click.option(
    "--model",
    "-m",
    default="oracle",
    show_default=True,
    metavar="M",
    shell_complete=options.models_complete,
    help="A model (`arena list models`), or harness/model.",
)
@options.hardware
@options.gpu
@click.option("--effort", metavar="E", help="Ask the model for this effort instead of the one in its harness.")
@options.turns
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
@click.option(
    "--gpu-access",
    type=click.Choice(["exclusive", "leased"]),
    default="exclusive",
    show_default=True,
    help="leased: the agent has no GPU of its own, and runs programs on it by turns with the command `gpu`.",
)
@click.option(
    "--dry-run", is_flag=True, help="Show the command line, the prompt and the estimated cost, or every refusal. Start nothing."
)
@options.progress
@options.as_json
@click.pass_context
def run(
    context: click.Context,
    problem_name: str,
    model: str,
    hardware_name: str | None,
    gpu: int,
    effort: str | None,
    turns: int | None,
    profile: bool,
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
    gpu_access: GpuAccess,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run one cell: MODEL works on PROBLEM in the sandbox, and the judge scores its solution.py independently."""
    spec = plan(
        problem_name,
        model,
        hardware=hardware_name,
        gpu=gpu,
        effort=effort,
        turns=turns,
        profile=profile,
        budget=budget,
        sandbox=sandbox_name,
        network=network,
        caps=caps,
        patience=patience,
        providers=provider,
        unpinned=unpinned,
        login=login,
        exclude_backoff=exclude_backoff,
        gpu_access=gpu_access,
    )
    options.say_settings(context)
    options.say_hardware(hardware_name, spec.hardware, gpu)
    options.say_caps(spec.access.caps if spec.access else None)
    if dry_run:
        _show_plan(spec, trials, as_json)
        return
    options.say_busy()
    if trials > 1:
        choice = ModelChoice(model=model, effort=effort, turns=turns, profile=profile, provider=provider, unpinned=unpinned)
        cells = Grid(
            models=(choice,),
            problems=(spec.problem.name,),
            budget=budget.strip(),
            exclude_backoff=exclude_backoff,
            allow=tuple(map(str, network.allowed)),
            allow_private=network.reach is private,
            network=network.mode,
            login=login,
            sandbox="docker" if sandbox_name == "docker" else "bwrap",
            patience=patience.strip(),
            max_requests=caps.requests,
            max_tokens=caps.tokens,
            max_cost=caps.cost_usd,
        )
        code, annotations = _play_trials(_sweep_of(spec, cells, trials, gpu_access), spec)
        if as_json:
            data(annotations)
        context.exit(code)
    tell(f"[bold]{safe(spec.selected.model_name)}[/] on [bold]{spec.problem.name}[/] ({safe(spec.hardware.title)})")
    with gpu_locks.held_by("arena run", spec.hardware, frozenset({spec.gpu})), Display() as display:
        annotation = run_cell(spec, display.show)
    show_run(annotation)
    if as_json:
        data([annotation])
    if uncounted(annotation):
        context.exit(1)


def _sweep_of(spec: RunSpec, cells: Grid, trials: int, access: GpuAccess) -> Sweep:
    """The sweep of one cell that several trials are. None of them is tried again."""
    return Sweep(
        name=f"run_{datetime.now(UTC):%Y%m%dt%H%M%Sz}_{secrets.token_hex(2)}",
        trials=trials,
        cells=(cells,),
        hardware=spec.hardware.name,
        place=Place(parallel=1, gpus=frozenset({spec.gpu}), judge=frozenset(), access=access, lease=f"{spec.lease_s:g}s"),
        retry=Retry(provider_error=0, judge_failed=0, interrupted=0),
    )


def _play_trials(sweep: Sweep, spec: RunSpec) -> tuple[int, list[Annotation]]:
    """Work on such a sweep, and show each run as `arena run` does; the exit code."""
    places = grid.places_on(sweep, spec.hardware)
    planned = grid.trials(grid.cells(sweep, spec.hardware, grid.shares(places)), sweep.trials)
    folder, shown = paths.sweeps() / sweep.name, dict[str, Annotation]()
    tell(f"{sweep.trials} trials; if they are interrupted, `arena sweep {sweep.name}` goes on")
    with scheduler.held(folder), gpu_locks.held_for(sweep, spec.hardware), Display() as display:
        documents.write_yaml(folder / "sweep.yaml", sweep)

        def say(text: str, view: View) -> None:
            if text:
                tell(safe(text))
            for state in view.trials:
                if state.doing and "phase" in state.doing.last:
                    told = state.doing.last
                    activity = Activity(**told["activity"]) if told["activity"] else None
                    display.show(Progress(told["phase"], told["text"], told["elapsed_s"], told["budget_s"], activity))
                for attempt in state.attempts:
                    if attempt.judged and attempt.run_id not in shown:
                        shown[attempt.run_id] = records.read(paths.annotations() / f"{attempt.run_id}.yaml")
                        show_run(shown[attempt.run_id])

        work = scheduler.Scheduler(sweep, planned, OneMachine(folder, places), folder, say, {})
        code = work.work()
    render()
    left = [state for state in work.view().trials if state.step == "play" and not state.attempts]
    if left and any(annotation.session.account_fault for annotation in shown.values()):
        tell(f"the other {len(left)} would end the same way and are left out")
    elif left:
        tell(f"{len(left)} trials are left: `arena sweep {sweep.name}` goes on")
    return code, list(shown.values())


def _show_plan(spec: RunSpec, trials: int, as_json: bool) -> None:
    """Answer --dry-run."""
    planned, cell = rehearse(spec), spec.cell()
    cost_usd = forecast.run_usd(cell, records.read_all(paths.annotations())) if cell.route else 0.0
    if as_json:
        known = {"cell": cell.model_dump(mode="json"), "trials": trials, "cost_usd": cost_usd}
        data(known | planned._asdict())
        return
    known_usd = "unknown: this model has no run on record" if cost_usd is None else f"about {trials * cost_usd:.2f} USD"
    with answering():
        tell(f"[bold]{safe(spec.selected.model_name)}[/] on [bold]{spec.problem.name}[/] ({safe(spec.hardware.title)})")
        tell(f"trials  {trials}, each with a budget of {spec.times.budget_s:g} s and a score")
        tell(f"cost    {known_usd + ', by its runs on record' * bool(cost_usd) if cell.route else 'none: no model is asked'}")
        tell(f"command {safe(shlex.join(planned.command))}")
        tell(f"prompt\n\n{safe(planned.prompt)}")


def show_run(annotation: Annotation) -> None:
    """Print how a run ended, its score, and where its files are."""
    session = annotation.session
    tell(f"agent {session.agent_status} after {session.elapsed_s:.1f} s: {safe(session.message)}")
    show_session(session)
    show_score(annotation.score)
    tell(f"annotation  {safe(paths.annotations() / annotation.run_id)}.yaml")
    tell(f"leaderboard {safe(paths.leaderboard() / 'LEADERBOARD.md')}")
    if reason := uncounted(annotation):
        remedy = session.account_fault or REMEDIES[reason]
        tell(f"[bold red]this run does not count ({reason}):[/] {safe(remedy)}")
