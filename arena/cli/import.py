"""`arena import`: problems out of other benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import rich_click as click

from arena.cli import options
from arena.cli.console import data, note, safe, tell
from arena.errors import UsageError
from arena.files import documents
from arena.importing.records import Arithmetic, Import, Imported
from arena.results.baselines import versions
from arena.sandboxes.backends import backend

if TYPE_CHECKING:
    from arena.importing.kernelbench import Choices
    from arena.sandboxes import Sandbox

FORMS = ("kernelbench", "definition")


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
    form: Literal["kernelbench", "definition"],
    sources: tuple[str, ...],
    out: Path,
    sizes: Path | None,
    arithmetic: Arithmetic,
    rules: str,
    at_once: int,
    sandbox_name: str,
    as_json: bool,
) -> None:
    """Convert tasks of other benchmarks into problems. Their code runs in a sandbox alone.

    FORM kernelbench takes files, folders, or FOLDER/NUMBER. FORM definition takes two files of FlashInfer-Bench or
    SOL-ExecBench: a definition (JSON) and its workloads (JSON lines).

    import.yaml in the folder is written after each task; after an interrupt the same command goes on. Exit code 1 when a task
    is unfit: the table and import.yaml say why.
    """
    from arena.importing import kernelbench

    sandbox = backend(sandbox_name)
    if missing := sandbox.missing():
        raise UsageError(missing)
    choices = kernelbench.Choices(arithmetic, rules == "no-torch", _sizes(sizes))
    if form == "definition":
        if len(sources) != 2:
            raise UsageError("the form definition takes two files: DEFINITION.json WORKLOADS.jsonl")
        work = _definition(_file(sources[0]), _file(sources[1]), choices, sandbox)
    else:
        work = _kernelbench(sources, choices, sandbox)
    tasks = _convert(work, form, out, at_once)
    unfit = sum(not task.problem for task in tasks)
    ended = f"{len(tasks) - unfit} problems in {safe(out)}, {unfit} tasks unfit (import.yaml has the sizes and gates)"
    data(tasks) if as_json else tell(ended)
    if not as_json and unfit < len(tasks):
        tell("Read each reference.py before you check or score: it runs in the judge's process.")
    if unfit:
        context.exit(1)


class Work(NamedTuple):
    """What is to be converted."""

    heads: dict[Path, Imported]
    """The record of each task before it is converted."""
    names: dict[Path, str]
    """The problem that each task would be."""
    convert: Callable[[Path, Path], Imported]
    """Converts a task into a folder."""


def _kernelbench(sources: Sequence[str], choices: Choices, sandbox: Sandbox) -> Work:
    from arena.importing import kernelbench

    paths = kernelbench.sources(sources)
    return Work(
        {path: kernelbench.head(path, choices) for path in paths},
        {path: kernelbench.problem_name(path, choices.arithmetic) for path in paths},
        lambda path, folder: kernelbench.convert(path, folder, sandbox, choices, note),
    )


def _definition(path: Path, workloads: Path, choices: Choices, sandbox: Sandbox) -> Work:
    from arena.importing import definition
    from arena.importing.definition_format import read_definition, read_workloads

    read = read_definition(path)
    read_workloads(workloads, read)  # a broken file shows before anything is written
    name = definition.problem_name(read, choices.arithmetic)
    return Work(
        {path: definition.head(path, workloads, choices, read)},
        {path: name},
        lambda path, folder: definition.convert(path, workloads, folder, sandbox, choices, note),
    )


def _convert(work: Work, form: Literal["kernelbench", "definition"], out: Path, at_once: int) -> list[Imported]:
    """Convert what is left of the work, and tell of each task."""
    import arena
    from arena.importing import several

    head = Import(
        benchmark=form,
        arena_version=arena.__version__,
        torch_version=versions(("torch",)).get("torch", ""),
        tasks=(),
    )
    record = several.Record(out, head)
    _no_two_alike(work.names)
    found = record.done(work.heads, work.names)
    for one in found.values():
        _tell(one, "there already, ")
    left = [path for path in work.heads if path not in found]
    for path, one in several.convert_all(left, work.convert, record, at_once):
        found[path] = one
        _tell(one)
    return [found[path] for path in work.heads]


def _file(source: str) -> Path:
    path = Path(source).expanduser()
    if not path.is_file():
        raise UsageError(f"{source}: no such file")
    return path


def _tell(one: Imported, already: str = "") -> None:
    gap = f"gap {max(one.gap.values()):.0f}" if one.gap else ""
    if one.problem:
        tell(f"  [green]fit  [/] {safe(one.problem):16} {safe(one.source)}  {already}{gap}")
        if left := one.dropped.get("workloads"):
            tell(f"        without {safe(left)}")
        if one.theirs:
            ours, theirs = (", ".join(f"{key} {value:g}" for key, value in each.items()) for each in (one.tolerance, one.theirs))
            tell(f"        tolerance {safe(ours)}; the workload's own, which is not used: {safe(theirs)}")
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
