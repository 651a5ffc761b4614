"""LEADERBOARD.md: the tables for people, rendered from the board."""

from __future__ import annotations

import re
from pathlib import Path

from arena.files.text import render
from arena.results.board import Board

TEMPLATE = Path(__file__).with_name("leaderboard.md.j2")


def page(board: Board) -> str:
    """The text of LEADERBOARD.md. The same board gives the same bytes."""
    return render(TEMPLATE, filters={"md": _escaped}, board=board)


def _escaped(value: object) -> str:
    """Text on one line that Markdown shows unchanged, also inside a table. Underscores within words need no escape."""
    text = re.sub(r"[\x00-\x1f\x7f-\x9f\s]+", " ", str(value))
    return re.sub(r"[\\`*\[\]|<>~#&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", text)
