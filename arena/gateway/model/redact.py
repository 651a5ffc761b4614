"""Nothing that holds the real key may reach the box."""

from __future__ import annotations


class Guard:
    """Looks through one answer as it passes."""

    def __init__(self, key: str | None) -> None:
        self._key = (key or "").encode()
        self._kept = b""
        self.found = False

    def feed(self, piece: bytes) -> bytes:
        """What of the answer may go on. The key's beginning at the end of a piece is kept back, as its rest may follow."""
        if not self._key:
            return piece
        data = self._kept + piece
        if self.found or self._key in data:
            self.found = True
            return b""
        kept = self._begun(data)
        self._kept = data[len(data) - kept :]
        return data[: len(data) - kept]

    def rest(self) -> bytes:
        """What was kept back, and was no key."""
        return b"" if self.found else self._kept

    def _begun(self, data: bytes) -> int:
        """Length of the longest beginning of the key that stands at the end."""
        longest = min(len(self._key) - 1, len(data))
        if self._key[0] not in data[len(data) - longest :]:
            return 0
        return next((length for length in range(longest, 0, -1) if data.endswith(self._key[:length])), 0)


def scrubbed(text: str, key: str | None) -> str:
    """The text without the key."""
    return text.replace(key, "[the key]") if key else text
