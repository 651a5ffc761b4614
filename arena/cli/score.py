"""`arena score`: score one file, without an agent."""

from __future__ import annotations

import os
from pathlib import Path

import rich_click as click

from arena import catalog
from arena.cli import options
from arena.cli.console import Display, data
from arena.cli.render import show_score
from arena.errors import UsageError
from arena.plan import problem_on
from arena.sandboxes.backends import backend
from arena.schema import Score
from arena.submission import NoSubmission, collect


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@options.problem
@options.hardware
@options.gpu
@options.sandbox
@options.as_json
@click.pass_context
def score(
    context: click.Context, file: Path, problem_name: str, hardware_name: str | None, gpu: int, sandbox_name: str, as_json: bool
) -> None:
    """Score one solution FILE with the same judge as in a run. The judge cannot know the file's author."""
    problem, hardware = problem_on(problem_name, hardware_name, gpu)
    if not os.path.lexists(file):
        raise UsageError(f"{file}: no such file")
    sandbox = backend(sandbox_name)
    options.say_hardware(hardware_name, hardware, gpu)
    from arena import judge

    digest = catalog.problem_digest(problem.name)
    with Display() as display:
        display.judging("looking at the machine")
        judge.preflight(hardware, gpu)
        try:
            submission = collect(file.parent.resolve(), file.name)
        except NoSubmission as outcome:
            result: Score = judge.missing(outcome.reason, problem, hardware, digest)
        else:
            result = judge.score(submission, problem, hardware, digest=digest, sandbox=sandbox, report=display.judging, gpu=gpu)
    data(result) if as_json else show_score(result)
    if result.verdict == "judge_failed":
        context.exit(1)
