"""`arena import`: problems out of other benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import rich_click as click

from arena.cli import options
from arena.cli.console import data, note, safe, tell
from arena.errors import UsageError
from arena.files import documents
from arena.importing.records import Arithmetic, Import, Imported
from arena.sandboxes.backends import backend

FORMS = ("kernelbench",)


@click.command("import")
@click.argument("form", metavar="FORM", type=click.Choice(FORMS))
@click.argument("sources", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Write a folder for each problem into this one; name it in $ARENA_PROBLEMS afterwards.",
)
@click.option(
    "--sizes",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Choose sizes: YAML {problem: {cpu|gpu: {name: size}}}.",
)
@click.option(
    "--arithmetic",
    type=click.Choice(get_args(Arithmetic)),
    default="fp32",
    show_default=True,
    help="Choose what the tolerance allows; the next coarser one is refused.",
)
@click.option(
    "--rules",
    type=click.Choice(["none", "no-torch"]),
    default="none",
    show_default=True,
    help="With no-torch, forbid what torch and kernel libraries compute ready-made.",
)
@options.sandbox
@options.as_json
@click.pass_context
def import_(
    context: click.Context,
    form: str,
    sources: tuple[str, ...],
    out: Path,
    sizes: Path | None,
    arithmetic: Arithmetic,
    rules: str,
    sandbox_name: str,
    as_json: bool,
) -> None:
    """Convert tasks of FORM kernelbench (files, folders, or FOLDER/NUMBER) into problems. Their code runs in a sandbox alone.

    Exit code 1 when a task is unfit. The closing table says why, and import.yaml in the folder keeps it.
    """
    import arena
    from arena.importing import kernelbench

    sandbox, given, tasks = backend(sandbox_name), _sizes(sizes), list[Imported]()
    if missing := sandbox.missing():
        raise UsageError(missing)
    found = kernelbench.sources(sources)
    for path in found:
        rule = rules == "no-torch"
        one = kernelbench.convert(path, out, sandbox, arithmetic=arithmetic, rules=rule, given=given, note=note)
        tasks.append(one)
        gap = f"gap {max(one.gap.values()):.0f}" if one.gap else ""
        if one.problem:
            tell(f"  [green]fit  [/] {safe(one.problem):16} {safe(one.source)}  {gap}")
        else:
            tell(f"  [red]unfit[/] {safe(one.source)}: {safe(one.unfit)}")
    out.mkdir(parents=True, exist_ok=True)
    record = Import(
        benchmark="kernelbench",
        commit=kernelbench.commit(found[0]),
        licence=kernelbench.licence(found[0]),
        arena_version=arena.__version__,
        tasks=_kept(out / "import.yaml", tasks),
    )
    documents.write_yaml(out / "import.yaml", record)
    unfit = sum(not task.problem for task in tasks)
    ended = f"{len(tasks) - unfit} problems in {safe(out)}, {unfit} tasks unfit (import.yaml has the sizes and gates)"
    data(tasks) if as_json else tell(ended)
    if not as_json and unfit < len(tasks):
        tell("Read each reference.py before you check or score: it runs in the judge's process.")
    if unfit:
        context.exit(1)


def _kept(path: Path, tasks: list[Imported]) -> tuple[Imported, ...]:
    """These tasks, and those of earlier imports into the same folder."""
    before = documents.read_yaml(path, Import).tasks if path.is_file() else ()
    new = {(task.source, task.arithmetic) for task in tasks}
    return (*(task for task in before if (task.source, task.arithmetic) not in new), *tasks)


def _sizes(path: Path | None) -> dict[str, dict[str, dict[str, int]]]:
    """The user's sizes. DataError when the file holds anything else."""
    if path is None:
        return {}
    from pydantic import RootModel

    return documents.read_yaml(path, RootModel[dict[str, dict[str, dict[str, int]]]]).root
