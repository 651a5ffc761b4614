"""`arena baseline`: measure what libraries, and the problem's own naive and oracle, reach at a problem."""

from __future__ import annotations

import rich_click as click

import arena
from arena import catalog, paths, run_cell
from arena.cli import options
from arena.cli.console import data, safe, tell, verdict
from arena.plan import ready
from arena.results import baselines
from arena.sandboxes.backends import backend
from arena.schema import BaselineLine


@click.command("baseline")
@options.problems("measure")
@click.option(
    "--line", "lines", multiple=True, metavar="L", help="Measure this line only, repeatable, and keep the others that are stored."
)
@options.sandbox
@options.as_json
@click.pass_context
def baseline_(
    context: click.Context,
    pairs: options.Pairs,
    hardware_name: str | None,
    gpu: int,
    lines: tuple[str, ...],
    sandbox_name: str,
    as_json: bool,
) -> None:
    """Measure what torch, libraries, and the problem's naive and oracle reach at a problem.

    Results are stored under baselines/ and shown, never scored. Gains are measured from naive. A line that could not run leaves a
    stored one of its name as it is, with --line.
    """
    sandbox = backend(sandbox_name)
    ready()
    from arena.authoring import baseline

    if lines:  # refused before anything is measured
        for problem, hardware in pairs:
            path = baselines.path_of(paths.baselines(), hardware.name, problem.name)
            versions = {"arena": arena.__version__, **baseline.versions(baseline.chosen(problem, hardware, lines))}
            if path.exists():
                baselines.refuse_unlike(path, baselines.read(path), catalog.problem_digest(problem.name), versions)
    records, failed = [], 0
    options.say_hardware(hardware_name, pairs[0][1], gpu)
    for problem, hardware in pairs:
        tell(f"[bold]{problem.name}[/] on {safe(hardware.title)}")
        record = baseline.measure(problem, hardware, sandbox, gpu=gpu, only=lines, report=_show)
        if any(line.verdict == "judge_failed" for line in record.lines):
            records.append(record)
            failed += 1
            continue
        if lines:
            record = baselines.add(paths.baselines(), record, [line.name for line in baseline.chosen(problem, hardware)])
        else:
            baselines.write(paths.baselines(), record)
        records.append(record)
        tell(f"baselines {safe(baselines.path_of(paths.baselines(), hardware.name, problem.name))}")
        run_cell.render()
    if as_json:
        data(records)
    if failed:
        tell(f"[red]the judge failed on {failed} problems: nothing was stored for them[/]")
        context.exit(1)


def _show(line: BaselineLine) -> None:
    number = "absent" if line.fraction is None else f"{line.fraction:.4f}"
    where = "not run" if line.verdict is None else verdict(line.verdict)
    speed_only = ", speed only" if line.fraction is not None and line.verdict != "passed" else ""
    message = f": {line.message}" if line.message else ""
    tell(f"  {safe(line.name):12} {number:7} {where}{speed_only}  {safe(line.title + message)}")
