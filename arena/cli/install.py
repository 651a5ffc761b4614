"""`arena install`: install agent CLIs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import rich_click as click
from rich.table import Table

from arena import catalog
from arena.agents import install as installer
from arena.cli import options
from arena.cli.console import answering, data, safe, tell, tell_table
from arena.errors import Faults, UsageError
from arena.files.documents import unknown
from arena.schema import Harness

REGISTRIES = 4
"""Harnesses whose packages are looked up at the same time."""


@click.command()
@click.argument("names", nargs=-1, metavar="[HARNESS]...")
@click.option("--all", "everything", is_flag=True, help="Install every agent CLI (about 3 GB).")
@click.option("--outdated", is_flag=True, help="Install nothing: list the versions pinned, installed and newest.")
@options.as_json
def install(names: tuple[str, ...], everything: bool, outdated: bool, as_json: bool) -> None:
    """Install agent CLIs, each into its own folder, in the version that arena was tested with.

    HARNESS is one of `arena list harnesses`. A CLI that is installed in that version is kept.
    """
    harnesses = {name: harness for name, harness in catalog.harnesses().items() if harness.cli}
    if as_json and not outdated:
        raise UsageError("--json is for --outdated")
    if bool(names) == everything and not (outdated and not names):
        raise UsageError(f"name the CLIs to install, or give --all (known: {', '.join(harnesses)})")
    for name in names:
        if name not in harnesses:
            raise UsageError(unknown("harness with a CLI", name, harnesses))
    if outdated:
        show_outdated([harnesses[name] for name in names or harnesses], as_json=as_json)
        return
    faults = Faults()
    for name in names or harnesses:
        harness = harnesses[name]
        tell(f"{safe(harness.title)}: installing into {safe(installer.folder(name))}")
        new = faults.collect(partial(installer.install, harness))
        if new is not None:
            tell(f"{safe(harness.title)}: {'installed' if new else 'was installed already'}")
    faults.raise_all()


def show_outdated(harnesses: list[Harness], *, as_json: bool) -> None:
    """Print every package of the harnesses with its versions."""
    with ThreadPoolExecutor(REGISTRIES) as pool:
        rows = [row for found in pool.map(installer.outdated, harnesses) for row in found]
    if as_json:
        data([row._asdict() for row in rows])
        return
    table = Table(*installer.Outdated._fields, box=None, pad_edge=False)
    for row in rows:
        table.add_row(
            *(safe(value or "unknown" if name == "newest" else value or "none") for name, value in row._asdict().items())
        )
    with answering():
        tell_table(table)
