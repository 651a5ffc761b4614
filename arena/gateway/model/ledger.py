"""What a run asked of its provider and got: `ledger.jsonl` in its folder, from which its usage can be told at any time.

A line when a request begins and one when it ends, each on disk before anything else happens: a killed arena leaves all of it.
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
from arena.files.jsonl import Lines
from arena.gateway.config import PATIENCE_S
from arena.gateway.model.ledger_lines import Began, Ended, Full, Line, Refused
from arena.gateway.model.totals import Tally
from arena.schema import Usage

ASIDE_BYTES = 4 << 20
"""Of the file, for what is no request to the model: a box may bring about as much of that as it likes."""
FULL = "the ledger is full"
LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="event")])


class Ledger:
    """The file, open, and what it adds up to. Written by the gateway's thread; `tally` may be read by any."""

    def __init__(self, lines: Lines, patience_s: float = PATIENCE_S) -> None:
        self.tally = Tally(patience_s=patience_s)
        self._lines = lines
        self._aside_bytes = 0

    def add(self, line: Line) -> str:
        """Append a line. In words why no further one can be, else empty."""
        aside = self._aside(line)
        self.tally = self.tally.add(line)
        if aside and self._aside_bytes > ASIDE_BYTES:
            return ""
        try:
            before_bytes = self._lines.bytes
            kept = self._lines.add(asdict(line), asdict(Full()))
            self._aside_bytes += aside * (self._lines.bytes - before_bytes)
            return "" if kept else FULL
        except OSError as error:
            return f"the ledger cannot be written ({error.strerror})"

    def _aside(self, line: Line) -> bool:
        began = self.tally.in_flight.get(line.n) if isinstance(line, Ended) else line
        return isinstance(line, Refused) or (isinstance(began, Began) and began.kind == "count")


@contextmanager
def opened(path: Path, patience_s: float = PATIENCE_S) -> Iterator[Ledger]:
    """A new ledger at that path. OSError."""
    with FileIO(path, "x") as file:  # no buffer: what was told is there, however arena ends
        yield Ledger(Lines(file), patience_s)


def read(path: Path) -> Usage:
    """What a ledger adds up to; a last line that was not finished does not count. DataError.

    Of a run that was killed, back-off counts up to the last line.
    """
    tally, until_s = Tally(), 0.0
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    for number, text in enumerate(data.split(b"\n")[:-1], 1):
        try:
            line = LINE.validate_json(text)
        except ValidationError as error:
            raise DataError(f"{path}:{number}: is no line of a ledger: {error.errors()[0]['msg']}") from None
        tally, until_s = tally.add(line), getattr(line, "s", until_s)
    return tally.ended(until_s)
