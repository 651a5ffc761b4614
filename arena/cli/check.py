"""`arena check`: check whether a problem is ready to be published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import rich_click as click

from arena import catalog
from arena.cli import options
from arena.cli.console import data, safe, tell, verdict
from arena.files.blanks import refuse_blanks
from arena.sandboxes.backends import backend

if TYPE_CHECKING:
    from arena.authoring.check import Report


@click.command()
@options.problems("check")
@options.sandbox
@options.as_json
@click.pass_context
def check(
    context: click.Context, pairs: options.Pairs, hardware_name: str | None, gpu: int, sandbox_name: str, as_json: bool
) -> None:
    """Check problems: the contract, degenerate answers, and the verdict of each solution against the one on its first line."""
    for problem, _ in pairs:
        refuse_blanks(catalog.problem_folder(problem.name))
    sandbox = backend(sandbox_name)
    from arena.authoring.check import check_problem
    from arena.authoring.contract import Finding

    def show(finding: Finding) -> None:
        mark = "[green]ok  [/]" if finding.ok else "[bold red]FAIL[/]"
        got = verdict(finding.got) if finding.kind == "solution" else safe(finding.got)
        took = "" if finding.seconds is None else f"  [dim]{finding.seconds:.1f} s[/]"
        tell(f"  {mark} {safe(finding.name):24} {got}  {safe(finding.detail)}{took}")

    reports = []
    options.say_hardware(hardware_name, pairs[0][1], gpu)
    for problem, hardware in pairs:
        tell(f"[bold]{problem.name}[/] on {safe(hardware.title)}")
        reports.append(check_problem(problem, hardware, sandbox, gpu=gpu, report=show))
    for one in reports:
        tell(_where_the_time_went(one))
    if as_json:
        data(reports)
    failed = sum(not finding.ok for report in reports for finding in report.findings)
    tell(f"[red]{failed} of the checks failed[/]" if failed else "[green]every check passed[/]")
    if failed:
        context.exit(1)


def _where_the_time_went(report: Report) -> str:
    """The seconds of a problem's check and of each of its scores, the longest first."""
    timed = sorted((one for one in report.findings if one.seconds), key=lambda one: -(one.seconds or 0))
    parts = ", ".join(f"{safe(one.name)} {one.seconds:.1f}" for one in timed)
    return f"[dim]{report.problem}: {report.seconds:.0f} s (side by side they overlap): {parts}[/]"
