"""The two streams: `people` for those who read along, `data` for programs."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape

from arena.files import documents

on_a_terminal = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
"""Whether a line can be redrawn. Not what rich thinks: FORCE_COLOR, which many CI systems set, makes no terminal of a file."""
people = Console(stderr=True, highlight=False, emoji=False)
if not sys.stderr.isatty():
    people = Console(stderr=True, highlight=False, emoji=False, width=120)  # a log has no width of its own

COLOURS = {"passed": "green", "incorrect": "red", "forbidden": "red", "cheated": "bold red", "crashed": "red", "timed_out": "red"}


def data(value: BaseModel | Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON document to stdout, in UTF-8 whatever the locale."""
    plain = (
        [entry.model_dump(mode="json") if isinstance(entry, BaseModel) else entry for entry in value]
        if isinstance(value, Sequence)
        else value
    )
    try:
        sys.stdout.buffer.write(documents.to_json(plain).encode())
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # Whoever read us has seen enough, as `| head` has. Python would complain on closing the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(markup: str) -> None:
    """Print a line for people. What came from anywhere else is passed through `safe` first."""
    people.print(markup, soft_wrap=True)


def safe(text: object) -> str:
    """Text from an agent, a submission or a file as it stands: nothing in it is markup, and nothing moves the cursor."""
    return escape("".join(c for c in str(text) if c == "\n" or unicodedata.category(c)[0] != "C"))


def verdict(word: str) -> str:
    """A verdict in its colour."""
    return f"[{COLOURS.get(word, 'yellow')}]{word}[/]"
