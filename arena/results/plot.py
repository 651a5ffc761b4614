"""The leaderboard as a picture: for each problem what agents and libraries reached, between nothing and the ceiling."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jinja2

TEMPLATE = Path(__file__).with_name("plot.svg.j2")


class Mark(NamedTuple):
    """One number."""

    name: str
    fraction: float
    inside: bool = True
    """Whether it passes the problem's gate: a baseline need not."""


class Strip(NamedTuple):
    """One problem."""

    name: str
    agents: Sequence[Mark]
    baselines: Sequence[Mark]


def plot(title: str, strips: Sequence[Strip]) -> str:
    """An SVG document. The same strips give the same bytes."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["xml"] = _said
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(title=title, strips=strips)


def _said(text: str) -> str:
    """On one line, and without what XML cannot hold."""
    return re.sub(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+", " ", text)
