"""The board for people: the tables of LEADERBOARD.md, and an SVG plot per hardware. The same board gives the same bytes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from arena.files import text
from arena.results.board import Board, Table

TEMPLATES = Path(__file__).parent


class Mark(NamedTuple):
    """One number in a plot."""

    name: str
    fraction: float
    within_tolerance: bool = True
    """False for a baseline that fails the problem's correctness check."""


class Strip(NamedTuple):
    """One problem in a plot: what agents and baselines reach, on a scale from zero to the ceiling."""

    name: str
    agents: Sequence[Mark]
    baselines: Sequence[Mark]
    tried: bool = True
    """Whether an agent's trial counted."""


def page(board: Board) -> str:
    """The text of LEADERBOARD.md."""
    return text.render(TEMPLATES / "leaderboard.md.j2", filters={"md": _markdown}, board=board)


def plot(title: str, strips: Sequence[Strip]) -> str:
    """An SVG document."""
    return text.render(TEMPLATES / "plot.svg.j2", autoescape=True, filters={"xml": _xml}, title=title, strips=strips)


def strips(table: Table) -> list[Strip]:
    """One strip per problem: the medians of the sealed rows, and the baselines that have a number."""
    names = dict.fromkeys([*(column.key for column in table.columns), *(reached.column for reached in table.reached)])
    agents: dict[str, list[Mark]] = defaultdict(list)
    tried = set[str]()
    for row in table.rows:
        for key, entry in row.entries.items():
            if entry.counted:
                tried.add(key)
            if entry.median is not None and row.network != "unsealed":
                agents[key].append(Mark(" ".join(filter(None, (row.harness, row.model, row.effort))), entry.median))
    baselines: dict[str, list[Mark]] = defaultdict(list)
    for reached in table.reached:
        for line in reached.baselines.lines:
            if line.fraction is not None:
                baselines[reached.column].append(Mark(line.name, line.fraction, line.verdict == "passed"))
    return [Strip(name, agents[name], baselines[name], name in tried) for name in names]


def _markdown(value: object) -> str:
    """Text on one line that Markdown shows unchanged, also inside a table. Underscores within words need no escape."""
    line = re.sub(r"[\x00-\x1f\x7f-\x9f\s]+", " ", str(value))
    return re.sub(r"[\\`*\[\]|<>~#&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", line)


def _xml(value: str) -> str:
    """Text on one line, without the characters that XML forbids."""
    return re.sub(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+", " ", value)
