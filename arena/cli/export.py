"""`arena export`: runs in the formats of other tools."""

from __future__ import annotations

import json
from pathlib import Path

import rich_click as click

from arena import paths
from arena.cli import options
from arena.cli.console import answer, data, safe, tell
from arena.cli.show import find_scored
from arena.cli.site import SHOWN, read_results
from arena.errors import UsageError
from arena.export import atif as atif_format
from arena.export import dataset as dataset_format
from arena.export import keys, stored_run
from arena.export.keys import KeyFoundError
from arena.export.stored_run import StoredRun
from arena.files import documents
from arena.results import annotations as records
from arena.site import results

runs = click.argument("run_ids", metavar="RUN...", nargs=-1, required=True, shell_complete=options.runs_complete)


@click.group("export")
def export() -> None:
    """Write runs in a format of other tools: ATIF, a data set, Inspect logs. No file with one of your keys is written."""


@export.command("atif")
@runs
@click.option("--out", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Write into this file instead of to stdout.")
@click.pass_context
def atif(context: click.Context, run_ids: tuple[str, ...], out: Path | None) -> None:
    """Write the trajectory of each RUN as a document of ATIF v1.6. Several runs become JSON lines, one document a line."""
    found = [atif_format.document(run) for run in stored(run_ids)]
    # ASCII alone: a terminal takes some characters of an agent's text for commands.
    text = "".join(json.dumps(each, indent=1 if len(found) == 1 else None, allow_nan=False) + "\n" for each in found)
    try:
        keys.refuse(text, "the document", keys.known())
    except KeyFoundError as error:
        refused(context, error)
    if out is None:
        answer(text)
    else:
        documents.write_text(out, text)
        tell(f"{safe(out)}: {sum(len(each['steps']) for each in found)} steps of {len(found)} run{'s' * (len(found) != 1)}")


@export.command("dataset")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the data set into this folder, which must be new or empty.",
)
@click.option(
    "--runs",
    "shown",
    default="public",
    show_default=True,
    type=SHOWN,
    help="Whose transcript and solution to include: all runs of this machine, those with a review, or none.",
)
@click.option("--hardware", "hardware", metavar="NAME", help="Include the results of this hardware alone.")
@click.option("--no-source", is_flag=True, help="Leave out solutions. A transcript may still quote them.")
@options.as_json
@click.pass_context
def dataset(
    context: click.Context, out: Path, shown: results.Shown, hardware: str | None, no_source: bool, as_json: bool
) -> None:
    """Write all results as JSON lines with a data card, as the Hugging Face Hub reads them. Publishing them is up to you."""
    found = read_results(shown, source=not no_source, hardware=hardware)
    try:
        files = dataset_format.build(found, out)
    except KeyFoundError as error:
        refused(context, error)
    if as_json:
        data({"folder": str(out), "files": files})
    else:
        tell(f"{len(files)} files in {safe(out)}; set the license in its README.md before you publish it")


@export.command("inspect")
@runs
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Write the logs into this folder.")
@click.pass_context
def inspect(context: click.Context, run_ids: tuple[str, ...], out: Path) -> None:
    """Write RUNs as logs of Inspect, one for each cell with its trials as epochs: `inspect view --log-dir OUT` shows them."""
    try:
        from arena.export import inspect_log  # its package is an extra, and takes a second to import
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "inspect_ai":
            raise
        raise UsageError("the package inspect-ai is not installed: `pip install 'arena[inspect]'`") from None
    try:
        files = inspect_log.write(stored(run_ids), out)
    except KeyFoundError as error:
        refused(context, error)
    else:
        tell(f"{len(files)} log{'s' * (len(files) != 1)}: {safe(', '.join(map(str, files)))}")


def stored(run_ids: tuple[str, ...]) -> list[StoredRun]:
    """The runs of these names, each once, with their files. UsageError for a run without an annotation."""
    found: dict[str, StoredRun] = {}
    for name in run_ids:
        annotation = records.read(find_scored(name, "can be exported"))
        results.check_run_id(annotation.run_id)
        found[annotation.run_id] = stored_run.read(annotation, paths.workspaces())
    return list(found.values())


def refused(context: click.Context, error: KeyFoundError) -> None:
    """Report a key that an export would hold, and exit as `arena site` does."""
    tell(f"[bold red]arena:[/] {safe(error)}")
    context.exit(1)
