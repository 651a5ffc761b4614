"""`arena score` and `arena calibrate`: the judge without an agent."""

from __future__ import annotations

import os
from pathlib import Path

import rich_click as click

from arena import catalog
from arena.cli import options
from arena.cli.console import data, safe, tell
from arena.cli.display import Display
from arena.cli.render import show_attainable, show_score
from arena.errors import UsageError
from arena.plan import hardware_on, problem_on
from arena.sandboxes.backends import backend
from arena.schema import Hardware, Score
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
    """Score one solution FILE. The same judge as in a run; it cannot know who wrote the file."""
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
        except NoSubmission as none:
            result: Score = judge.missing(none.reason, problem, hardware, digest)
        else:
            result = judge.score(submission, problem, hardware, digest=digest, sandbox=sandbox, report=display.judging, gpu=gpu)
    data(result) if as_json else show_score(result)
    if result.verdict == "judge_failed":
        context.exit(1)


@click.command()
@options.hardware
@options.gpu
@options.as_json
def calibrate(hardware_name: str | None, gpu: int, as_json: bool) -> None:
    """Measure what this machine can do, while it is idle.

    On hardware `cpu` these are the ceilings of scores; of a GPU they are shown beside the datasheet's, which stay the ceilings.
    """
    hardware = hardware_on(hardware_name, gpu)
    options.say_hardware(hardware_name, hardware, gpu)
    if hardware.profile == "gpu":
        _calibrate_gpu(hardware, gpu, as_json)
    else:
        _calibrate_cpu(as_json)


def _calibrate_cpu(as_json: bool) -> None:
    from arena.judge.device import calibrate_cpu as measuring

    with Display() as display:
        display.judging("measuring one core")
        found = measuring.cpu(fresh=True)
    if as_json:
        data(found)
        return
    rates = ", ".join(f"{rate} {value:.3f} TFLOP/s" for rate, value in found.tflops.items())
    tell(f"{safe(found.device)}, one core: {found.bandwidth_gb_s:.1f} GB/s, {rates}")


def _calibrate_gpu(hardware: Hardware, gpu: int, as_json: bool) -> None:
    from arena.judge.device import calibrate_gpu, detect

    with Display() as display:
        display.judging(f"measuring GPU {gpu}")
        with detect.open_device(hardware, gpu) as device:
            found = calibrate_gpu.calibrate(gpu)
    if as_json:
        data(found)
        return
    tell(f"GPU {gpu}, {safe(device.record.name)}, driver {safe(found.driver)}, torch {safe(found.torch)}")
    show_attainable(found, hardware)


COMMANDS = (score, calibrate)
