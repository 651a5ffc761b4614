"""The leaderboard as a picture: for each problem what agents and baselines reach, on a scale from zero to the ceiling."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from arena.files.text import render
from arena.results.board import Table

TEMPLATE = Path(__file__).with_name("plot.svg.j2")


class Mark(NamedTuple):
    """One number."""

    name: str
    fraction: float
    within_tolerance: bool = True
    """False for a baseline that fails the problem's correctness check."""


class Strip(NamedTuple):
    """One problem."""

    name: str
    agents: Sequence[Mark]
    baselines: Sequence[Mark]


def plot(title: str, strips: Sequence[Strip]) -> str:
    """An SVG document. The same strips give the same bytes."""
    return render(TEMPLATE, autoescape=True, filters={"xml": _xml_text}, title=title, strips=strips)


def strips(table: Table) -> list[Strip]:
    """One strip per problem: the medians of the sealed rows, and the baselines that have a number."""
    names = dict.fromkeys([*(column.key for column in table.columns), *(reached.column for reached in table.reached)])
    agents: dict[str, list[Mark]] = defaultdict(list)
    for row in table.rows:
        for key, entry in row.entries.items():
            if entry.median is not None and row.network != "unsealed":
                agents[key].append(Mark(" ".join(filter(None, (row.harness, row.model, row.effort))), entry.median))
    baselines: dict[str, list[Mark]] = defaultdict(list)
    for reached in table.reached:
        for line in reached.baselines.lines:
            if line.fraction is not None:
                baselines[reached.column].append(Mark(line.name, line.fraction, line.verdict == "passed"))
    return [Strip(name, agents[name], baselines[name]) for name in names]


def _xml_text(text: str) -> str:
    """Text on one line, without the characters that XML forbids."""
    return re.sub(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+", " ", text)
