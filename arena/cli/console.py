"""The two streams: `people` for those who read along, `data` for programs."""

from __future__ import annotations

import os
import sys
import time
import unicodedata
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from arena.agents.supervisor import Progress
from arena.files import documents

on_a_terminal = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
"""Whether a line can be redrawn. Not what rich thinks: FORCE_COLOR, which many CI systems set, makes no terminal of a file."""
people = Console(stderr=True, highlight=False, emoji=False)
if not sys.stderr.isatty():
    people = Console(stderr=True, highlight=False, emoji=False, width=120)  # a log has no width of its own

COLOURS = {"passed": "green", "incorrect": "red", "forbidden": "red", "cheated": "bold red", "crashed": "red", "timed_out": "red"}
PLAIN_EVERY_S = 15.0
"""Where lines cannot be redrawn, one is printed so often, and at each change of phase."""


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


class Display:
    """Shows the last progress told, for the length of a `with` block."""

    def __init__(self) -> None:
        self._progress = Progress("start")
        self._phase_s = time.monotonic()
        self._printed_s = 0.0
        self._live = (
            Live(self, console=people, refresh_per_second=4, transient=True, redirect_stdout=False) if on_a_terminal else None
        )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def __rich__(self) -> Text:
        progress = self._progress
        elapsed_s = progress.elapsed_s or time.monotonic() - self._phase_s
        budget = f" of {_clock(progress.budget_s)}" if progress.budget_s else ""
        # Joined from parts, never parsed: the text may be an agent's. Cut to one line, or redrawing would leave the rest behind.
        return Text.assemble(
            (f"{progress.phase:8}", "cyan"), f" {_clock(elapsed_s)}{budget}  {progress.text}", no_wrap=True, overflow="ellipsis"
        )

    def show(self, progress: Progress) -> None:
        """Take note of where the work is."""
        now_s = time.monotonic()
        changed = progress.phase != self._progress.phase
        if changed:
            self._phase_s = now_s
        self._progress = progress
        # How the agent ended is in the summary of the run.
        if self._live is None and progress.phase != "ended" and (changed or now_s - self._printed_s > PLAIN_EVERY_S):
            self._printed_s = now_s
            people.print(self.__rich__())

    def judging(self, text: str) -> None:
        """Take note of what the judge does."""
        self.show(Progress("judge", text))


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
