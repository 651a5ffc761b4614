"""The two output streams, progress on stderr and answers on stdout, the progress line, and the log file."""

from __future__ import annotations

import io
import json
import os
import sys
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from arena.errors import UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from arena.agents.supervisor import Progress


on_a_terminal = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
"""Whether a line can be redrawn. Not left to rich: FORCE_COLOR, which many CI systems set, makes no file a terminal."""
people = Console(stderr=True, highlight=False, emoji=False, width=None if sys.stderr.isatty() else 120)  # a log file has no width
answers = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 400)  # a pipe has no width
_shown = people
COLOURS = {"passed": "green", "incorrect": "red", "forbidden": "red", "cheated": "bold red", "crashed": "red", "timed_out": "red"}
PLAIN_EVERY_S = 15.0
"""Without a terminal, print a line at this interval and at each change of phase."""
WIDE_LOG = 300
"""Columns of a progress line in the log file."""
WIDE = 100
"""Columns from which the progress line has the whole clock."""
TEXT_SHARE = 5
"""This part of the progress line, one in so many columns, is kept for what the agent does now."""
progress_as_json = False
"""Whether progress is printed as JSON lines, for programs."""
verbose = False
"""Whether each step of an agent is printed as a line of its own."""
log: Console | None = None
"""A file that also receives all text for people, with the time of each line."""


def data(value: BaseModel | Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON document to stdout, in UTF-8 whatever the locale."""
    from arena.files import documents  # its libraries take a tenth of a second to import

    answer(documents.to_json(value))


def answer(text: str) -> None:
    """Write text for programs to stdout, in UTF-8 whatever the locale."""
    try:
        sys.stdout.buffer.write(text.encode())
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


def set_up(*, quiet: bool, more: bool, log_file: Path | None) -> None:
    """Follow the options that stand before the command."""
    global verbose, log
    people.quiet, verbose = quiet, more
    if log_file is not None:
        try:
            file = log_file.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)
        except OSError as error:
            raise UsageError(f"--log-file {log_file}: {error.strerror}") from None
        log = Console(file=file, highlight=False, emoji=False, color_system=None, width=400)


def set_progress(form: str) -> None:
    """Print progress as `text` or `jsonl`."""
    global progress_as_json
    progress_as_json = form == "jsonl"


def tell(markup: str) -> None:
    """Print a line for people. Pass text from outside arena through `safe` first."""
    _shown.print(markup, soft_wrap=True)
    note(markup)


def note(text: str | Text | Table) -> None:
    """Write to the log file, if there is one."""
    if log:
        log.print(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", text, soft_wrap=True)


def tell_table(table: Table) -> None:
    """Print a table for people; its cells as in `tell`."""
    _shown.print(table)
    note(table)


def safe(text: object) -> str:
    """Text from an agent, a submission or a file, made harmless: no markup, no control characters that move the cursor."""
    return escape("".join(c for c in str(text) if c == "\n" or unicodedata.category(c)[0] != "C"))


def verdict(word: str) -> str:
    """A verdict as coloured markup."""
    return f"[{COLOURS.get(word, 'yellow')}]{word}[/]"


class Display:
    """The progress line, for the length of a `with` block: redrawn on a terminal, printed now and then elsewhere."""

    def __init__(self) -> None:
        from arena.agents.supervisor import Progress  # imports the sandboxes, which `arena --help` does not need

        self._progress = Progress("start")
        self._phase_s = time.monotonic()
        self._printed_s = 0.0
        drawn = on_a_terminal and not progress_as_json and not people.quiet
        self._live = Live(self, console=people, refresh_per_second=4, transient=True, redirect_stdout=False) if drawn else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def __rich__(self) -> Text:
        return self._line(people.width)

    def _line(self, columns: int) -> Text:
        elapsed_s = self._progress.elapsed_s or time.monotonic() - self._phase_s
        return progress_line(replace(self._progress, elapsed_s=elapsed_s), columns)

    def show(self, progress: Progress) -> None:
        """Show this progress."""
        now_s = time.monotonic()
        before, self._progress = self._progress, progress
        changed = progress.phase != before.phase
        if changed:
            self._phase_s = now_s
        moved = replace(progress, elapsed_s=0.0) != replace(before, elapsed_s=0.0)
        if progress_as_json:
            if moved:
                print(json.dumps(asdict(progress)), file=sys.stderr, flush=True)
            return
        if progress.phase == "ended":  # the summary of the run reports how the agent ended
            return
        stepped = (progress.phase, progress.text) != (before.phase, before.text)
        if stepped:
            note(self._line(WIDE_LOG))
        if (verbose and stepped) or (self._live is None and (changed or now_s - self._printed_s > PLAIN_EVERY_S)):
            self._printed_s = now_s
            people.print(self)

    def judging(self, text: str) -> None:
        """Show what the judge does."""
        self.show(replace(self._progress, phase="judge", text=text))


def progress_line(progress: Progress, columns: int) -> Text:
    """The progress in one line of at most so many columns: the clock, as many facts as there is room for, what is done now.

    A second line would survive a redraw. Assembled from parts, never parsed as markup: the text may come from an agent.
    """
    facts = _facts(progress)
    if not progress.activity or columns >= WIDE:
        budget = f" of {clock(progress.budget_s)}" if progress.budget_s else ""
        phase, head = f"{progress.phase:8}", f" {clock(progress.elapsed_s)}{budget}"
    else:
        phase, head = progress.phase, f" {facts.pop(0)}"
    room = columns - len(phase + head) - 2 - min(len(progress.text) + 2, columns // TEXT_SHARE)
    shown: list[str] = []
    for fact in facts:
        if len(", ".join([*shown, fact])) <= room:
            shown.append(fact)
    rest = "".join(f"  {part}" for part in (", ".join(shown), progress.text) if part)
    line = Text.assemble((phase, "cyan"), head, rest, no_wrap=True)
    line.truncate(columns, overflow="ellipsis")
    return line


def _facts(progress: Progress) -> list[str]:
    """What is known of an agent at work, the most important first."""
    if (found := progress.activity) is None:
        return []
    failing = found.asking if "after" in found.asking else ""
    counts = ((found.steps, "step"), (found.snapshots, "snapshot"), (found.requests, "request"))
    steps, snapshots, requests = (f"{count} {word}{'s' * (count != 1)}" if count else "" for count, word in counts)
    facts = [
        f"{clock(max(progress.budget_s - progress.elapsed_s, 0.0))} left",
        failing,
        f"check {found.check}" if found.check else "",
        steps,
        "" if found.cost_usd is None or not found.requests else f"${found.cost_usd:.2f}",
        f"{amount(found.tokens)} tokens" if found.tokens else "",
        snapshots,
        requests,
        "" if failing else found.asking,
    ]
    return [fact for fact in facts if fact]


def amount(count: int) -> str:
    """`900`, `12k`, `1.2M`."""
    return f"{count}" if count < 1000 else f"{count / 1e3:.0f}k" if count < 999_500 else f"{count / 1e6:.1f}M"


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes}:{seconds:02}"
