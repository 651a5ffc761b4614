"""`arena import`: problems out of other benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import rich_click as click

from arena.cli import options
from arena.cli.console import data, note, safe, tell
from arena.errors import UsageError
from arena.files import documents
from arena.importing.records import Arithmetic, Import, Imported
from arena.results.baselines import versions
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
@click.option(
    "--at-once",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="Convert this many tasks at a time, each on a core of its own.",
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
    at_once: int,
    sandbox_name: str,
    as_json: bool,
) -> None:
    """Convert tasks of FORM kernelbench (files, folders, or FOLDER/NUMBER) into problems. Their code runs in a sandbox alone.

    import.yaml in the folder is written after each task; after an interrupt the same command goes on. Exit code 1 when a task
    is unfit: the table and import.yaml say why.
    """
    import arena
    from arena.importing import kernelbench, several

    sandbox = backend(sandbox_name)
    if missing := sandbox.missing():
        raise UsageError(missing)
    choices = kernelbench.Choices(arithmetic, rules == "no-torch", _sizes(sizes))
    paths = kernelbench.sources(sources)
    head = Import(
        benchmark="kernelbench",
        commit=kernelbench.commit(paths[0]),
        licence=kernelbench.licence(paths[0]),
        arena_version=arena.__version__,
        torch_version=versions(("torch",)).get("torch", ""),
        tasks=(),
    )
    record = several.Record(out, head)
    names = {path: kernelbench.problem_name(path, arithmetic) for path in paths}
    _no_two_alike(names)
    found = record.done({path: kernelbench.head(path, choices) for path in paths}, names)
    for one in found.values():
        _tell(one, "there already, ")
    left = [path for path in paths if path not in found]

    def convert(path: Path, folder: Path) -> Imported:
        return kernelbench.convert(path, folder, sandbox, choices, note)

    for path, one in several.convert_all(left, convert, record, at_once):
        found[path] = one
        _tell(one)
    tasks = [found[path] for path in paths]
    unfit = sum(not task.problem for task in tasks)
    ended = f"{len(tasks) - unfit} problems in {safe(out)}, {unfit} tasks unfit (import.yaml has the sizes and gates)"
    data(tasks) if as_json else tell(ended)
    if not as_json and unfit < len(tasks):
        tell("Read each reference.py before you check or score: it runs in the judge's process.")
    if unfit:
        context.exit(1)


def _tell(one: Imported, already: str = "") -> None:
    gap = f"gap {max(one.gap.values()):.0f}" if one.gap else ""
    if one.problem:
        tell(f"  [green]fit  [/] {safe(one.problem):16} {safe(one.source)}  {already}{gap}")
    else:
        tell(f"  [red]unfit[/] {safe(one.source)}: {already}{safe(one.unfit)}")


def _no_two_alike(names: Mapping[Path, str]) -> None:
    """UsageError when two tasks would be one problem."""
    first = dict[str, Path]()
    for path, name in names.items():
        if (other := first.setdefault(name, path)) is not path:
            raise UsageError(f"{other} and {path} would both be {name}; import them into two folders")


def _sizes(path: Path | None) -> dict[str, dict[str, dict[str, int]]]:
    """The user's sizes. DataError when the file holds anything else."""
    if path is None:
        return {}
    from pydantic import RootModel

    return documents.read_yaml(path, RootModel[dict[str, dict[str, dict[str, int]]]]).root
