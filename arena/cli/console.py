"""The two output streams, progress on stderr and answers on stdout, and the progress line."""

from __future__ import annotations

import io
import os
import sys
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import TracebackType
from typing import Any, Self

from pydantic import BaseModel
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from arena.agents.supervisor import Progress
from arena.files import documents

on_a_terminal = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
"""Whether a line can be redrawn. Not left to rich: FORCE_COLOR, which many CI systems set, makes no file a terminal."""
people = Console(stderr=True, highlight=False, emoji=False, width=None if sys.stderr.isatty() else 120)  # a log file has no width
answers = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 400)  # a pipe has no width
_shown = people
COLOURS = {"passed": "green", "incorrect": "red", "forbidden": "red", "cheated": "bold red", "crashed": "red", "timed_out": "red"}
PLAIN_EVERY_S = 15.0
"""Without a terminal, print a line at this interval and at each change of phase."""


def data(value: BaseModel | Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON document to stdout, in UTF-8 whatever the locale."""
    try:
        sys.stdout.buffer.write(documents.to_json(value).encode())
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader closed the pipe, as `| head` does. Without this, Python reports an error when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def answering(*, paged: bool = False) -> Iterator[None]:
    """Print what follows to stdout: it is what the command was asked for. `paged`: through a pager, on a terminal."""
    global _shown
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a locale without a character loses none
    _shown = answers
    try:
        with answers.pager() if paged and sys.stdout.isatty() else nullcontext():
            yield
    finally:
        _shown = people


def tell(markup: str) -> None:
    """Print a line for people. Pass text from outside arena through `safe` first."""
    _shown.print(markup, soft_wrap=True)


def tell_table(table: Table) -> None:
    """Print a table for people; its cells as in `tell`."""
    _shown.print(table)


def safe(text: object) -> str:
    """Text from an agent, a submission or a file, made harmless: no markup, no control characters that move the cursor."""
    return escape("".join(c for c in str(text) if c == "\n" or unicodedata.category(c)[0] != "C"))


def verdict(word: str) -> str:
    """A verdict as coloured markup."""
    return f"[{COLOURS.get(word, 'yellow')}]{word}[/]"


class Display:
    """The progress line, for the length of a `with` block: redrawn on a terminal, printed now and then elsewhere."""

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
        budget = f" of {clock(progress.budget_s)}" if progress.budget_s else ""
        # Assembled from parts, never parsed as markup: the text may come from an agent. A second line would survive a redraw.
        return Text.assemble(
            (f"{progress.phase:8}", "cyan"), f" {clock(elapsed_s)}{budget}  {progress.text}", no_wrap=True, overflow="ellipsis"
        )

    def show(self, progress: Progress) -> None:
        """Show this progress."""
        now_s = time.monotonic()
        changed = progress.phase != self._progress.phase
        if changed:
            self._phase_s = now_s
        self._progress = progress
        # The summary of the run reports how the agent ended.
        if self._live is None and progress.phase != "ended" and (changed or now_s - self._printed_s > PLAIN_EVERY_S):
            self._printed_s = now_s
            people.print(self.__rich__())

    def judging(self, text: str) -> None:
        """Show what the judge does."""
        self.show(Progress("judge", text))


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes}:{seconds:02}"
