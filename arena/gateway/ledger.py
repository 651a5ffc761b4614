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
from arena.gateway.entries import Full, Line
from arena.gateway.lines import Lines
from arena.gateway.tally import Tally
from arena.schema import Usage

LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="event")])


class Ledger:
    """The file, open, and what it adds up to. Written by the gateway's thread; `tally` may be read by any."""

    def __init__(self, lines: Lines) -> None:
        self.tally = Tally()
        self._lines = lines

    def add(self, line: Line) -> str:
        """Append a line. In words why no further one can be, else empty."""
        self.tally = self.tally.add(line)
        try:
            return "" if self._lines.add(asdict(line), asdict(Full())) else "the ledger is full"
        except OSError as error:
            return f"the ledger cannot be written ({error.strerror})"


@contextmanager
def opened(path: Path) -> Iterator[Ledger]:
    """A new ledger at that path. OSError."""
    with FileIO(path, "x") as file:  # no buffer: what was told is there, however arena ends
        yield Ledger(Lines(file))


def read(path: Path) -> Usage:
    """What a ledger adds up to; a last line that was not finished does not count. DataError."""
    tally = Tally()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    for number, text in enumerate(data.split(b"\n")[:-1], 1):
        try:
            tally = tally.add(LINE.validate_json(text))
        except ValidationError as error:
            raise DataError(f"{path}:{number}: is no line of a ledger: {error.errors()[0]['msg']}") from None
    return tally.usage
