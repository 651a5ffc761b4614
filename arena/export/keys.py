"""No export holds a key of arena's user: what would is refused as a whole."""

from __future__ import annotations

from collections.abc import Collection

from arena.errors import ArenaError
from arena.site import keys as site_keys


class KeyFoundError(ArenaError):
    """An export would hold a key."""


def known() -> tuple[str, ...]:
    """Every key that a route could use here."""
    return site_keys.known()


def refuse(text: str, where: str, keys: Collection[str]) -> None:
    """KeyFoundError, which never shows the key, when the text holds one: as it is, or as a string within JSON, twice over too."""
    for key in keys:
        if any(form in text for form in site_keys.forms(key)):
            raise KeyFoundError(
                f"{where} would hold one of your own keys: nothing was written; replace the key at its provider, and remove it "
                "from the run's files"
            )
