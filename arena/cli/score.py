"""`arena score`: score one file, without an agent."""

from __future__ import annotations

import os
from pathlib import Path

import rich_click as click

from arena import api
from arena.cli import options
from arena.cli.console import Display, data
from arena.cli.render import show_score
from arena.errors import UsageError
from arena.plan import problem_on


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@options.problem
@options.hardware
@options.gpu
@options.sandbox
@options.progress
@options.as_json
@click.pass_context
def score(
    context: click.Context, file: Path, problem_name: str, hardware_name: str | None, gpu: int, sandbox_name: str, as_json: bool
) -> None:
    """Score one solution FILE with the same judge as in a run. The judge cannot know the file's author."""
    problem, hardware = problem_on(problem_name, hardware_name, gpu)
    if not os.path.lexists(file):  # before anything is said
        raise UsageError(f"{file}: no such file")
    options.say_settings(context)
    options.say_hardware(hardware_name, hardware, gpu)
    options.say_busy()
    with Display() as display:
        result = api.score(
            file, problem=problem.name, hardware=hardware.name, gpu=gpu, sandbox=sandbox_name, report=display.judging
        )
    data(result) if as_json else show_score(result)
    if result.verdict == "judge_failed":
        context.exit(1)
