"""Server-sent events, read as they come: whatever the pieces, and whatever the bytes."""

from __future__ import annotations

from collections.abc import Iterator

FRAME_BYTES = 16 << 20
"""Of one event. What a longer one holds stays unknown."""


class Events:
    """The data of one stream's events. Lines end with \\n or \\r\\n; nobody sends the lone \\r that the standard allows too."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        """Pieces of a line that has not ended, joined once: it may come in millions of them."""
        self._data: list[bytes] = []
        self._held_bytes = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The data of those events that this piece ends."""
        *ends, rest = piece.split(b"\n")
        for end in ends:
            self._hold(end)
            line = b"".join(self._line).removesuffix(b"\r")
            self._line.clear()
            if line:
                name, _, value = line.partition(b":")
                if name == b"data":
                    self._data.append(value.removeprefix(b" "))
                continue
            event = b"\n".join(self._data)
            self._data.clear()
            self._held_bytes = 0
            if event:
                yield event
        self._hold(rest)

    def rest(self) -> Iterator[bytes]:
        """What stands at the end without the empty line that belongs there; some servers leave it out."""
        return self.feed(b"\n\n")

    def _hold(self, piece: bytes) -> None:
        self._held_bytes += len(piece)
        if self._held_bytes > FRAME_BYTES:
            self._data.clear()
            self._line[:] = [b":"] if piece or self._line else []  # a comment, of which nothing is kept
        elif piece:
            self._line.append(piece)
