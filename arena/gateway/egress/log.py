"""What was asked of the allow proxy: one JSON object a line, in the run's folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path

from arena.files.jsonl import Lines


@dataclass
class Entry:
    """One request, filled in as it is served."""

    at: str
    host: str | None = None
    port: int | None = None
    verdict: str = "refused"
    """allowed; refused: by us; failed: allowed, but the host could not be reached; cut: nothing after this line is logged."""
    status: int = 0
    """Of the HTTP answer; 0 when there was none."""
    reason: str = ""
    address: str | None = None
    """Which of the name's addresses was reached, or tried last."""
    up_bytes: int = 0
    """From the box to the host."""
    down_bytes: int = 0
    seconds: float = 0.0


class Log:
    """The file, open, and what went wrong."""

    def __init__(self, lines: Lines) -> None:
        self.troubles: list[str] = []
        """In words for the session's record."""
        self._lines = lines
        self._told: set[str] = set()

    def note(self, entry: Entry) -> None:
        """Append a line, while there is room; nothing after the first that cannot be written."""
        last = Entry(entry.at, verdict="cut", reason="the log is full: later requests are not in it")
        try:
            self._lines.add(asdict(entry), asdict(last))
        except OSError as error:  # the disk is full or gone: that must not end the session whose requests these are
            self.trouble("the log", f"the allow proxy's log ends early, as it cannot be written ({error.strerror})")

    def trouble(self, what: str, text: str) -> None:
        """Keep the words, once for the same `what`: a box may bring the same about as often as it likes."""
        if what not in self._told:
            self._told.add(what)
            self.troubles.append(text)


@contextmanager
def opened(path: Path) -> Iterator[Log]:
    """The log at that path, appended to. OSError."""
    with FileIO(path, "a") as file:  # no buffer: what was noted is there, however arena ends
        yield Log(Lines(file))
