"""One line that says where the work is: redrawn on a terminal, printed now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.text import Text

from arena.agents.supervisor import Progress
from arena.cli.console import on_a_terminal, people

PLAIN_EVERY_S = 15.0
"""Where lines cannot be redrawn, one is printed so often, and at each change of phase."""


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
