"""The ledger: `ledger.jsonl` in a run's folder, from which the run's usage can be computed at any time.

The gateway writes a line when a request begins and one when it ends, each before it does anything else. So a killed arena leaves
the whole ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from io import FileIO
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from arena.errors import DataError
from arena.files.jsonl import JsonLines
from arena.gateway.config import PATIENCE_S
from arena.gateway.model.ledger_lines import Began, Ended, Full, Line, Refused
from arena.gateway.model.totals import Totals
from arena.schema import Usage

ASIDE_BYTES = 4 << 20
"""Of the file, for lines that are not about requests to the model: a sandbox may cause any number of those."""
FULL = "the ledger is full"
LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="event")])


class Ledger:
    """An open ledger and its totals. The gateway's thread writes it; any thread may read `totals`."""

    def __init__(self, lines: JsonLines, patience_s: float = PATIENCE_S) -> None:
        self.totals = Totals(patience_s=patience_s)
        self._lines = lines
        self._aside_bytes = 0

    def add(self, line: Line) -> str:
        """Append a line. Returns why no further line can be written, or an empty string."""
        aside = self._is_aside(line)
        self.totals = self.totals.add(line)
        if aside and self._aside_bytes > ASIDE_BYTES:
            return ""
        try:
            before_bytes = self._lines.bytes
            written = self._lines.add(asdict(line), asdict(Full()))
            self._aside_bytes += aside * (self._lines.bytes - before_bytes)
            return "" if written else FULL
        except OSError as error:
            return f"the ledger cannot be written ({error.strerror})"

    def _is_aside(self, line: Line) -> bool:
        began = self.totals.in_flight.get(line.n) if isinstance(line, Ended) else line
        return isinstance(line, Refused) or (isinstance(began, Began) and began.kind == "count")


@contextmanager
def opened(path: Path, patience_s: float = PATIENCE_S) -> Iterator[Ledger]:
    """A new ledger at that path. OSError."""
    with FileIO(path, "x") as file:  # no buffer: a written line stays, however arena ends
        yield Ledger(JsonLines(file), patience_s)


def read(path: Path) -> Usage:
    """The usage that a ledger records, without an unfinished last line. DataError.

    For a run that was killed, back-off counts up to the last line.
    """
    totals, until_s = Totals(), 0.0
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    for number, text in enumerate(data.split(b"\n")[:-1], 1):
        try:
            line = LINE.validate_json(text)
        except ValidationError as error:
            raise DataError(f"{path}:{number}: not a line of a ledger: {error.errors()[0]['msg']}") from None
        totals, until_s = totals.add(line), getattr(line, "s", until_s)
    return totals.ended(until_s)
