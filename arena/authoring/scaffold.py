"""A new problem's folder, in which three blanks are left."""

from __future__ import annotations

import shutil
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from arena import catalog, paths
from arena.errors import UsageError
from arena.files import documents
from arena.files.text import render
from arena.schema import Name

TEMPLATES = Path(__file__).with_name("new_problem")
ENDING = ".j2"


def create(name: str) -> Path:
    """Write the folder of a new problem into the first folder of one's own problems, and return it.

    UsageError when no such folder is named, the name is not one, or a problem or anything else has it already.
    """
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError:
        text = f"{name!r} is no name of a problem: use a-z, 0-9, `_`, `.` and `-`, at most 64, beginning with a letter or a digit"
        raise UsageError(text) from None
    if not (own := paths.own_problems()):
        raise UsageError(
            f"name the folder of your own problems: `arena --problems DIR new-problem {name}`, or `export ARENA_PROBLEMS=DIR`"
        )
    if name in catalog.problem_names():
        raise UsageError(f"{name}: there is a problem of that name already, in {catalog.problem_folder(name)}")
    folder = own[0] / name
    try:
        folder.mkdir()
    except FileExistsError:
        raise UsageError(f"{folder} is there already: choose another name, or remove it") from None
    try:
        for template in sorted(TEMPLATES.rglob(f"*{ENDING}")):
            path = folder / template.relative_to(TEMPLATES).with_suffix("")
            path.parent.mkdir(exist_ok=True)
            documents.write_text(path, render(template, name=name))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder
