"""`arena baseline`: measure what libraries, and the problem's own naive and oracle, reach at a problem."""

from __future__ import annotations

import rich_click as click

from arena import catalog, paths, run_cell
from arena.cli import options
from arena.cli.console import data, safe, tell, verdict
from arena.errors import DataError
from arena.plan import ready
from arena.results import baselines
from arena.sandboxes.backends import backend
from arena.schema import BaselineLine, Baselines, Hardware, Problem


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

    Results are stored under baselines/ and shown, never scored. Gains are measured from naive.
    """
    sandbox = backend(sandbox_name)
    ready()
    from arena.authoring import baseline

    for problem, hardware in pairs:
        baseline.chosen(problem, hardware, lines)  # names are refused before anything is measured
    stored = {(problem.name, hardware.name): _stored(problem, hardware) for problem, hardware in pairs if lines}
    records, failed = [], 0
    options.say_hardware(hardware_name, pairs[0][1], gpu)
    for problem, hardware in pairs:
        tell(f"[bold]{problem.name}[/] on {safe(hardware.title)}")
        record = baseline.measure(problem, hardware, sandbox, gpu=gpu, only=lines, report=_show)
        if earlier := stored.get((problem.name, hardware.name)):
            record = baselines.added(earlier, record)
        records.append(record)
        if any(line.verdict == "judge_failed" for line in record.lines):
            failed += 1
            continue
        tell(f"baselines {safe(baselines.write(paths.baselines(), record))}")
        run_cell.render()
    if as_json:
        data(records)
    if failed:
        tell(f"[red]the judge failed on {failed} problems: nothing was stored for them[/]")
        context.exit(1)


def _stored(problem: Problem, hardware: Hardware) -> Baselines | None:
    """The record to which lines are added; DataError where it is of another version of the problem."""
    path = baselines.path_of(paths.baselines(), hardware.name, problem.name)
    if not path.exists():
        return None
    stored = baselines.read(path)
    if stored.problem_digest != catalog.problem_digest(problem.name):
        raise DataError(f"{path}: is of an older text of {problem.name}: measure all lines again, without --line")
    return stored


def _show(line: BaselineLine) -> None:
    number = "absent" if line.fraction is None else f"{line.fraction:.4f}"
    where = "not run" if line.verdict is None else verdict(line.verdict)
    speed_only = ", speed only" if line.fraction is not None and line.verdict != "passed" else ""
    message = f": {line.message}" if line.message else ""
    tell(f"  {safe(line.name):12} {number:7} {where}{speed_only}  {safe(line.title + message)}")
