"""`arena sweep`: run a grid of cells, or go on with one."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import rich_click as click
from pydantic import ValidationError

from arena import catalog, paths
from arena.cli import board, options
from arena.cli.console import answering, data, safe, tell, tell_table
from arena.errors import UsageError
from arena.files import documents
from arena.plan import ready, seconds
from arena.results import annotations, baselines, statistics
from arena.results.board import Naive
from arena.run_cell import render
from arena.schema import Annotation, Hardware, Sweep, When
from arena.sweep import forecast, grid, scheduler
from arena.sweep.broker import Places
from arena.sweep.forecast import Shows
from arena.sweep.grid import PlannedCell
from arena.sweep.node import Machines, OneMachine
from arena.sweep.progress import LEAST_TRIALS, Problem, problem_of
from arena.sweep.scheduler import Shard, View
from arena.system import gpu_locks

FILE, LIVE = "sweep.yaml", "live.json"
LOST_VARIABLE, LOST_S = "ARENA_LOST_S", 120.0
"""Time after which a machine of Ray's that does not answer is given up. At half of it, it has ended its own processes."""


@click.command()
@click.argument("what", metavar="[FILE|NAME]", required=False)
@click.option("--model", "-m", "models", multiple=True, metavar="M", help="Without a file: try this model. Repeat for more.")
@click.option(
    "--problem", "-p", "problems", multiple=True, metavar="P", help="Try it on this problem, or `all`. Repeat for more."
)
@click.option("--trials", "-n", type=click.IntRange(1), metavar="N", help="Try each cell this many times. Default: 1.")
@click.option("--budget", metavar="T", help="The agent's wall clock: 45m (the default), 90s, 1.5h.")
@click.option("--name", metavar="NAME", help="Name the sweep; its file is written to sweeps/NAME.")
@options.hardware
@click.option("--parallel", type=click.IntRange(1), metavar="N", help="Play this many sessions at once.")
@click.option("--shard", metavar="I/N", help="Work on the I-th of N parts, beside other commands with the same results folder.")
@click.option(
    "--on", "engine", type=click.Choice(["ray"]), help="Work on the machines of the Ray cluster at RAY_ADDRESS, or on this host."
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and what is lacking for it. Start and write nothing.")
@click.option("--status", is_flag=True, help="Show how far the sweep is. Start nothing.")
@options.as_json
@click.pass_context
def sweep(
    context: click.Context,
    what: str | None,
    models: tuple[str, ...],
    problems: tuple[str, ...],
    trials: int | None,
    budget: str | None,
    name: str | None,
    hardware_name: str | None,
    parallel: int | None,
    shard: str | None,
    engine: str | None,
    dry_run: bool,
    status: bool,
    as_json: bool,
) -> None:
    """Run every model on every problem several times, as FILE or the options say; the same command goes on after anything.

    Exit codes: 0 every trial counts; 1 some trial does not, after its retries; 2 wrong usage; 3 stopped by its own limits;
    130 interrupted (the first Ctrl-C waits for the sessions at work, the second ends them).
    """
    flags = {"models": models, "problems": problems, "trials": trials, "budget": budget, "name": name, "hardware": hardware_name}
    file: Path | None = None
    if what is not None:
        if given := [flag for flag, value in flags.items() if value]:
            raise UsageError(f"{what} says it all: leave out {', '.join('--' + flag.removesuffix('s') for flag in given)}")
        file = _file(what)
        found = documents.read_yaml(file, Sweep)
    else:
        found = _from_options(models, problems, trials or 1, budget, name, hardware_name)
    if parallel is not None:
        found = found.model_copy(update={"place": found.place.model_copy(update={"parallel": parallel})})
    ready()
    hardware = _hardware_on_ray(found, shard) if engine else grid.hardware_of(found)
    places = Places(1) if engine else grid.places_on(found, hardware)
    planned = grid.cells(found, hardware, grid.shares(places))
    all_trials = grid.trials(planned, found.trials)
    records = annotations.read_all(paths.annotations()) if found.stop.when or dry_run else []
    naive = forecast.naive(records, baselines.read_all(paths.baselines()), hardware.name) if found.stop.when else {}
    view = scheduler.status(found, all_trials, naive, places)
    if dry_run or status:
        _show(found, view, planned, records, naive, as_json=as_json, plans=dry_run)
        return
    folder, part = paths.sweeps() / found.name, _shard(shard, found)
    locks = nullcontext() if engine else gpu_locks.held_for(found, hardware)  # each of Ray's machines has its own
    with scheduler.held(folder, part), locks:
        if file is None:
            documents.write_yaml(folder / FILE, found)
        elif file != folder / FILE:
            documents.write_bytes(folder / FILE, file.read_bytes())  # with its comments
        machines = _on_ray(found, planned, folder) if engine else OneMachine(folder, places)
        at_once = sum(each.sessions for each in machines.places().values())
        tell(f"sweep {found.name}: {board.summary(view)}, {at_once} at once on {safe(hardware.title)}")
        with board.Board(folder / LIVE) as shown:
            work = scheduler.Scheduler(found, all_trials, machines, folder, shown.say, naive, part)
            code = work.work()
    render()
    tell_table(board.table(work.view()))
    tell(safe(board.summary(work.view())))
    if as_json:
        data(board.record(work.view()))
    tell(f"leaderboard {safe(paths.leaderboard() / 'LEADERBOARD.md')}")
    if failed := [scheduler.name_of(state.trial) for state in work.view().trials if state.step == "failed"]:
        tell(
            safe(
                f"no attempt counts, and no further one is allowed: {'; '.join(failed)}. `retry` in the sweep's file allows more"
            )
        )
    elif code:
        tell(f"the same command goes on: arena sweep {found.name}")
    context.exit(code)


def _hardware_on_ray(sweep: Sweep, shard: str | None) -> Hardware:
    """The hardware of a sweep on Ray's machines. UsageError."""
    if sweep.hardware is None:
        raise UsageError("--on ray: the sweep's file names its `hardware`, which this machine need not have")
    if sweep.stop.cost_usd:
        raise UsageError("--on ray and stop.cost_usd do not go together: what a lost machine has spent is not known here")
    if any(cells.network == "open" or cells.allow_private for cells in sweep.cells):
        raise UsageError(
            "--on ray goes neither with `network: open` nor with `allow_private`: an agent that reaches Ray's ports runs what it "
            "likes on every machine"
        )
    if shard:
        raise UsageError("--on ray and --shard do not go together: Ray's machines share the work by themselves")
    return catalog.hardware(sweep.hardware)


def _on_ray(sweep: Sweep, planned: Sequence[PlannedCell], folder: Path) -> Machines:
    """The machines of Ray's cluster. UsageError."""
    from arena.sweep.cluster import Cluster

    lost_s = seconds(os.environ.get(LOST_VARIABLE, LOST_S), LOST_VARIABLE)
    return Cluster(
        sweep,
        planned,
        folder,
        lambda text: tell(safe(text)),
        os.environ.get("RAY_ADDRESS", "auto"),
        silence_s=lost_s / 2,
        lost_s=lost_s,
    )


def _shard(given: str | None, sweep: Sweep) -> Shard:
    """The part of `--shard`. UsageError."""
    if given is None:
        return scheduler.WHOLE
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", given)
    if match is None or int(match[1]) > int(match[2]):
        raise UsageError(f"--shard {given!r}: give the part and their number, such as 1/4 to 4/4")
    if sweep.stop.cost_usd:
        raise UsageError("--shard and stop.cost_usd do not go together: a part does not know what the others may still use")
    return Shard(int(match[1]), int(match[2]))


def _file(what: str) -> Path:
    """The file of that path, or of the sweep of that name. UsageError."""
    kept = {path.parent.name: path for path in sorted(paths.sweeps().glob(f"*/{FILE}"))}
    if what in kept:
        return kept[what]
    if not Path(what).is_file():
        text = f"{what} is neither a file nor a sweep"
        raise UsageError(f"{text} ({', '.join(kept)})" if kept else f"{text}: there is none in {paths.sweeps()} yet")
    return Path(what)


def _from_options(
    models: Sequence[str], problems: Sequence[str], trials: int, budget: str | None, name: str | None, hardware: str | None
) -> Sweep:
    missing = [flag for flag, value in (("--model", models), ("--problem", problems), ("--name", name)) if not value]
    if missing or name is None:
        raise UsageError(f"give a file, the name of a sweep, or {', '.join(missing)}")
    if (paths.sweeps() / name / FILE).exists():
        raise UsageError(f"sweep {name} is there already: `arena sweep {name}` goes on with it")
    cells = [{"models": models, "problems": "all" if "all" in problems else problems, "budget": budget or "45m"}]
    try:
        return Sweep.model_validate({"name": name, "trials": trials, "hardware": hardware, "cells": cells})
    except ValidationError as error:
        raise UsageError(
            "; ".join(f"{fault['loc'][-1]} {fault['input']!r}: {fault['msg']}" for fault in error.errors())
        ) from None


def _show(
    found: Sweep,
    view: View,
    planned: Sequence[PlannedCell],
    records: Sequence[Annotation],
    naive: Mapping[Problem, Naive],
    *,
    as_json: bool,
    plans: bool,
) -> None:
    """Answer --status and --dry-run."""
    record = board.record(view)
    folder = paths.sweeps() / found.name
    if not plans and scheduler.is_held(folder) and (folder / LIVE).exists():
        record = json.loads((folder / LIVE).read_bytes())  # of the process at work: it knows what its processes do now
    if plans:
        cost_usd = forecast.cost_usd([state.trial for state in view.trials if state.step == "play"], records)
        shows = forecast.shows(found, planned, records)
        record |= {"cost_usd": cost_usd, "shows": asdict(shows) if shows else None}
    if as_json:
        data(record)
        return
    with answering():
        tell_table(board.table(view))
        tell(safe(board.summary(view)))
        if found.stop.when:
            tell(safe(_stops(found.stop.when, found.trials, planned, naive)))
        if not plans:
            return
        cells = f"{len(planned)} cell{'s' * (len(planned) > 1)}"
        counts = f"{cells}, {found.trials} trials of each, {len(view.trials)} in all, {view.sessions} at once"
        tell(f"{counts}; budgets left {board.duration(board.left(view))}, and a score for each")
        known = f"about {cost_usd:.2f} USD, by earlier runs of the same models" if cost_usd else "none"
        tell("cost: " + ("unknown, some model has no run on record" if cost_usd is None else known))
        if shows:
            tell(_what_shows(shows, found.trials))


def _stops(when: When, trials: int, planned: Sequence[PlannedCell], naive: Mapping[Problem, Naive]) -> str:
    """What `stop.when` does here."""
    least = max(statistics.least_trials(when.half_width), LEAST_TRIALS)
    said = f"stop.when: a cell has no further trial once half_width {when.half_width:g} is reached, after {least} trials at least"
    if least >= trials:
        said += f": never before all {trials} are done"
    unknown = sorted({each.cell.problem for each in planned if problem_of(each.cell) not in naive})
    if unknown:
        said += f"; no naive kernel is known of {', '.join(unknown)}, whose cells have all trials (`arena baseline` measures it)"
    return said


def _what_shows(shows: Shows, trials: int) -> str:
    """The sentence on the least difference."""
    of = f"{trials} trial{'s' * (trials > 1)} of {shows.problems} problem{'s' * (shows.problems > 1)}"
    points = f"{shows.pass_difference * 100:.0f} points of pass rate"
    if shows.ratio is None:
        return f"shows: {of} tell two rows apart by {points}; how much a cell varies, only more trials can show"
    source = "by the runs on record" if shows.measured else "assumed: no model on record has passed a problem twice"
    words = f"by a ratio of {shows.ratio:.2f} given pass, or by {points}"
    passes = f"{statistics.PASS_RATE:.0%} of trials assumed to pass"
    return f"shows: {of} tell two rows apart {words} (in 4 of 5 such sweeps; {passes}; spread {shows.spread:.2f}, {source})"
