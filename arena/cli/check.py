"""`arena check`: check whether a problem is ready to be published."""

from __future__ import annotations

import rich_click as click

from arena import catalog
from arena.authoring import scaffold
from arena.cli import options
from arena.cli.console import data, safe, tell, verdict
from arena.sandboxes.backends import backend


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
        scaffold.refuse_blanks(catalog.problem_folder(problem.name))
    sandbox = backend(sandbox_name)
    from arena.authoring.check import check_problem
    from arena.authoring.contract import Finding

    def show(finding: Finding) -> None:
        mark = "[green]ok  [/]" if finding.ok else "[bold red]FAIL[/]"
        got = verdict(finding.got) if finding.kind == "solution" else safe(finding.got)
        tell(f"  {mark} {safe(finding.name):24} {got}  {safe(finding.detail)}")

    reports = []
    options.say_hardware(hardware_name, pairs[0][1], gpu)
    for problem, hardware in pairs:
        tell(f"[bold]{problem.name}[/] on {safe(hardware.title)}")
        reports.append(check_problem(problem, hardware, sandbox, gpu=gpu, report=show))
    if as_json:
        data(reports)
    failed = sum(not finding.ok for report in reports for finding in report.findings)
    tell(f"[red]{failed} of the checks failed[/]" if failed else "[green]every check passed[/]")
    if failed:
        context.exit(1)
