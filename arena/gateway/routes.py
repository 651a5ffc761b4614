"""Routes to providers of models, built-in and the user's own, and their keys. No other module reads a key."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from arena import paths
from arena.errors import UsageError
from arena.files.documents import read_yaml, unknown
from arena.schema import Route, Routes

BUILT_IN = Path(__file__).with_name("routes.yaml")
KEY = re.compile(r"[!-~]{8,4096}")
"""Characters that a header can hold. A shorter key would seem to leak in every answer."""


def routes() -> Mapping[str, Route]:
    """All routes by name. The user's own replace built-in ones of the same name. DataError."""
    named = os.environ.get("ARENA_ROUTES")
    own = Path(named).expanduser() if named else paths.config() / "routes.yaml"
    found = dict(read_yaml(BUILT_IN, Routes).routes)
    if named or own.exists():
        found |= read_yaml(own, Routes).routes
    return found


def route(name: str) -> Route:
    """One route. UsageError, DataError."""
    found = routes()
    if name not in found:
        raise UsageError(unknown("route", name, found))
    return found[name]


def key(route: Route) -> str | None:
    """The key to a route; None when it needs none. No error shows it. UsageError when it is missing or others can read it."""
    if route.key is None:
        return None
    file = paths.keys() / route.key
    if value := os.environ.get(route.key, "").strip():
        return _checked(value, f"the environment variable {route.key}")
    if file.exists():
        return _checked(_read(file), str(file))
    raise UsageError(
        f"{route.title} needs a key: put it into the environment variable {route.key}, "
        f"or into the file {file} (one line, chmod 600)"
    )


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise UsageError(f"{file}: not a regular file: put the key into one, on one line")
            if found.st_uid != os.geteuid():
                raise UsageError(f"{file}: belongs to another user, who could read or change the key: take it over with chown")
            if found.st_mode & 0o077:
                raise UsageError(f"{file}: other users may read it (mode {stat.S_IMODE(found.st_mode):04o}): chmod 600 {file}")
            return opened.read(1 << 13).decode("latin-1").strip()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None


def _checked(value: str, where: str) -> str:
    if not KEY.fullmatch(value):
        raise UsageError(f"{where}: not a key: give 8 or more letters, digits and signs on one line")
    return value
