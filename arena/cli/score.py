"""`arena score`: score one file, without an agent."""

from __future__ import annotations

import os
from pathlib import Path

import rich_click as click

from arena import api, catalog
from arena.cli import options
from arena.cli.console import Display, data
from arena.cli.render import show_score
from arena.errors import UsageError
from arena.plan import problem_on


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--as",
    "form",
    type=click.Choice(["kernelbench"]),
    help="Take FILE for a file with a ModelNew, as KernelBench's answers are. PROBLEM must be imported from there.",
)
@options.problem
@options.hardware
@options.gpu
@options.sandbox
@options.progress
@options.as_json
@click.pass_context
def score(
    context: click.Context,
    file: Path,
    form: str | None,
    problem_name: str,
    hardware_name: str | None,
    gpu: int,
    sandbox_name: str,
    as_json: bool,
) -> None:
    """Score one solution FILE with the same judge as in a run. The judge cannot know the file's author."""
    problem, hardware = problem_on(problem_name, hardware_name, gpu)
    if not os.path.lexists(file):  # before anything is said
        raise UsageError(f"{file}: no such file")
    source = with_model_new(file, problem.name) if form else file
    options.say_settings(context)
    options.say_hardware(hardware_name, hardware, gpu)
    options.say_busy()
    with Display() as display:
        result = api.score(
            source, problem=problem.name, hardware=hardware.name, gpu=gpu, sandbox=sandbox_name, report=display.judging
        )
    data(result) if as_json else show_score(result)
    if result.verdict == "judge_failed":
        context.exit(1)


def with_model_new(file: Path, problem: str) -> bytes:
    """The submission made of a file with a ModelNew. UsageError where the problem has no such form."""
    from arena.importing.folder import MODEL_NEW

    part = catalog.problem_folder(problem) / MODEL_NEW
    if not part.is_file():
        raise UsageError(f"{problem} is not imported from KernelBench: leave out --as, or choose an imported problem")
    return file.read_bytes() + part.read_bytes()
