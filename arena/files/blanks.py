"""The blanks that are left in the folder of a new problem."""

from __future__ import annotations

import re
from pathlib import Path

from arena.errors import DataError

BLANK = re.compile(r'\("BLANK (\d of \d: .*)"\)')
"""In the exception that a blank raises until it is filled."""
JUDGED = ("reference.py", "hidden.py")
"""The files of a problem without which nothing can be scored."""


def blanks(folder: Path) -> list[str]:
    """The blanks that are left in a problem's folder, each with its file, line and what belongs there, in their order."""
    lines = [
        (f"{path}:{number}", BLANK.search(line))
        for path in sorted(folder.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
    ]
    found = [(blank[1], place) for place, blank in lines if blank]
    return [f"{place}: blank {text}" for text, place in sorted(found)]


def refuse_blanks(folder: Path, *files: str) -> None:
    """DataError that lists the blanks of a problem's folder, if there are any; with `files`, if one of those has one."""
    left = blanks(folder)
    if left and (not files or any(one.startswith(f"{folder / file}:") for one in left for file in files)):
        head = f"{len(left)} of the problem's blanks are not filled:" if left[1:] else "a blank is left:"
        raise DataError("\n".join([head, *left]))
