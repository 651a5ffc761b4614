"""`arena new-problem`: begin a problem of one's own."""

from __future__ import annotations

import rich_click as click

from arena.cli.console import safe, tell
from arena.files.blanks import blanks


@click.command("new-problem")
@click.argument("name")
def new_problem(name: str) -> None:
    """Write the folder of a new problem NAME in which three blanks are left; filled, it passes `arena check`.

    It is written into the folder that `arena --problems DIR` names, else into the first one of $ARENA_PROBLEMS. Nothing is
    written over. Further fields of problem.yaml, shapes and tensors are yours to change (docs/add_a_problem.md).
    """
    from arena.authoring import scaffold

    folder = scaffold.create(name)
    tell(f"{safe(folder)}: fill these, then run `arena check {safe(name)} --hardware cpu`")
    for blank in blanks(folder):
        tell(f"  {safe(blank)}")
