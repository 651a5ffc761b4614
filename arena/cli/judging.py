"""`arena score`, `arena check` and `arena calibrate`: the judge without an agent."""

from __future__ import annotations

import os
from pathlib import Path

import rich_click as click
from rich.markup import escape

from arena import catalog
from arena.cli import options
from arena.cli.output import data, people, show_score, verdict
from arena.collect import NoSubmission, collect
from arena.errors import UsageError
from arena.sandboxes import backend
from arena.schema import Passed, Refused


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@options.problem
@options.hardware
@options.gpu
@options.sandbox
@options.as_json
@click.pass_context
def score(
    context: click.Context, file: Path, problem_name: str, hardware_name: str, gpu: int, sandbox_name: str, as_json: bool
) -> None:
    """Score one solution FILE. The same judge as in a run; it cannot know who wrote the file."""
    problem, hardware = options.problem_on(problem_name, hardware_name)
    sandbox = backend(sandbox_name)
    from arena import judge

    digest = catalog.problem_digest(problem.name)
    if not os.path.lexists(file):
        raise UsageError(f"{file}: no such file")
    try:
        submission = collect(file.parent, file.name)
    except NoSubmission as none:
        result: Passed | Refused = judge.missing(none.reason, problem, hardware, digest)
    else:
        with people.status("judge") as status:
            report = lambda text: status.update(f"judge: {escape(text)}")  # noqa: E731
            result = judge.score(submission, problem, hardware, digest=digest, sandbox=sandbox, report=report, gpu=gpu)
    data(result) if as_json else show_score(result)
    if result.verdict == "judge_failed":
        context.exit(1)


@click.command()
@click.argument("names", nargs=-1, metavar="[PROBLEM]...")
@click.option("--all", "everything", is_flag=True, help="Every problem there is.")
@options.hardware
@options.sandbox
@options.as_json
@click.pass_context
def check(
    context: click.Context, names: tuple[str, ...], everything: bool, hardware_name: str, sandbox_name: str, as_json: bool
) -> None:
    """The gate of a problem: its oracle, naive, wrong and cheating solutions each get the verdict on their first line."""
    if bool(names) == everything:
        raise UsageError(f"name the problems to check, or --all (known: {', '.join(catalog.problems())})")
    from arena import gate

    sandbox = backend(sandbox_name)
    reports = []
    for name in names or tuple(catalog.problems()):
        problem, hardware = options.problem_on(name, hardware_name)
        people.print(f"[bold]{name}[/] on {hardware.title}")
        reports.append(gate.check(problem, hardware, sandbox, report=_finding))
    if as_json:
        data([report.model_dump(mode="json") for report in reports])
    failed = [finding for report in reports for finding in report.findings if not finding.ok]
    people.print(f"[red]{len(failed)} of the checks failed[/]" if failed else "[green]every check passed[/]")
    if failed:
        context.exit(1)


def _finding(finding: object) -> None:
    from arena.gate import Finding

    assert isinstance(finding, Finding)
    mark = "[green]ok  [/]" if finding.ok else "[bold red]FAIL[/]"
    got = verdict(finding.got) if finding.kind == "solution" else escape(finding.got)
    people.print(f"  {mark} {escape(finding.name):24} {got}  {escape(finding.detail)}", soft_wrap=True)


@click.command()
@options.as_json
def calibrate(as_json: bool) -> None:
    """Measure what this machine can do: the ceilings of hardware `cpu`. Run it while the machine is idle."""
    from arena.judge import calibrate as measuring

    with people.status("measuring one core"):
        found = measuring.cpu(fresh=True)
    if as_json:
        data(found)
        return
    rates = ", ".join(f"{rate} {value:.3f} TFLOP/s" for rate, value in found.tflops.items())
    people.print(f"{escape(found.device)}, one core: {found.bandwidth_gb_s:.1f} GB/s, {rates}", soft_wrap=True)


COMMANDS = (score, check, calibrate)
