"""`arena install`: install agent CLIs."""

from __future__ import annotations

from functools import partial

import rich_click as click

from arena import catalog
from arena.agents import install as installer
from arena.cli.console import safe, tell
from arena.errors import Faults, UsageError
from arena.files.documents import unknown


@click.command()
@click.argument("names", nargs=-1, metavar="[HARNESS]...")
@click.option("--all", "everything", is_flag=True, help="Install every agent CLI (about 1.4 GB).")
def install(names: tuple[str, ...], everything: bool) -> None:
    """Install agent CLIs from npm, each into its own folder, in the version that arena was tested with.

    HARNESS is one of `arena list harnesses`. A CLI that is installed in that version is kept.
    """
    harnesses = {name: harness for name, harness in catalog.harnesses().items() if harness.cli}
    if bool(names) == everything:
        raise UsageError(f"name the CLIs to install, or give --all (known: {', '.join(harnesses)})")
    for name in names:
        if name not in harnesses:
            raise UsageError(unknown("harness with a CLI", name, harnesses))
    faults = Faults()
    for name in names or harnesses:
        harness = harnesses[name]
        tell(f"{safe(harness.title)}: installing into {safe(installer.folder(name))}")
        new = faults.collect(partial(installer.install, harness))
        if new is not None:
            tell(f"{safe(harness.title)}: {'installed' if new else 'was installed already'}")
    faults.raise_all()
