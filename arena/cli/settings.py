"""The user's own defaults: of the environment, of arena.toml in the working folder, and of arena.toml in arena's config folder.

An option on the command line comes before all of them. A key (secret) never stands there: `arena.paths.keys` has those.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from arena import paths
from arena.errors import DataError

FILE = "arena.toml"
PARAMETERS = {
    "model": "model",
    "hardware": "hardware_name",
    "budget": "budget",
    "sandbox": "sandbox_name",
    "max_requests": "max_requests",
    "max_tokens": "max_tokens",
    "max_cost": "max_cost",
}
"""Each setting with the name of the parameter that it fills."""
USED = {
    "run": tuple(PARAMETERS),
    "score": ("hardware", "sandbox"),
    "check": ("hardware",),
    "baseline": ("hardware",),
    "calibrate": ("hardware",),
    "sandbox": ("hardware", "sandbox"),
    "doctor": ("sandbox",),
}
"""The commands that take settings. `arena sweep` takes none: its file says it all."""
SECRET = ("key", "secret", "password", "credential")


class Setting(NamedTuple):
    """One default."""

    name: str
    value: str | int | float
    origin: str


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"ARENA_{name.upper()}"


def settings() -> list[Setting]:
    """Every setting that is made, as the first that makes it says. DataError with all faults of both files."""
    found: dict[str, Setting] = {}
    for name in PARAMETERS:
        if value := os.environ.get(variable(name)):
            found[name] = Setting(name, value, f"${variable(name)}")
    faults: list[str] = []
    for path in dict.fromkeys((Path.cwd() / FILE, paths.config() / FILE)):
        if not path.is_file():
            continue
        if why := _foreign(path):
            faults.append(f"{path}: {why}")
        else:
            for name, value in _read(path, faults).items():
                found.setdefault(name, Setting(name, value, str(path)))
    if faults:
        raise DataError("\n".join(faults))
    return list(found.values())


def defaults(command: str, made: list[Setting]) -> dict[str, str | int | float]:
    """The parameters of a command that these settings fill."""
    return {PARAMETERS[each.name]: each.value for each in made if each.name in USED.get(command, ())}


def _foreign(path: Path) -> str:
    """Why a file may be another's, such as an agent's, whose settings could move a score; empty when it is the user's own."""
    if path.resolve().is_relative_to(paths.workspaces().resolve()):
        return "agents write in this folder: run arena elsewhere"
    if path.stat().st_uid not in (os.geteuid(), 0):
        return "another user owns it: run arena elsewhere, or make it your own"
    return ""


def _read(path: Path, faults: list[str]) -> dict[str, Any]:
    """The settings of one file; what is wrong with it goes to `faults`."""
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        faults.append(f"{path}: cannot be read: {error.strerror}")
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        faults.append(f"{path}: not TOML: {error}")
        return {}
    for name, value in read.items():
        if fault := _fault(name, value):
            faults.append(f"{path}: {name}: {fault}")
    return read


def _fault(name: str, value: object) -> str:
    """What is wrong with a setting; empty when nothing is."""
    if name not in PARAMETERS:
        if any(word in name.lower() for word in SECRET):
            return f"no key belongs here: put it into the environment, or into a file of its variable's name in {paths.keys()}"
        from arena.files.documents import unknown  # its libraries take a tenth of a second to import

        return unknown("setting", name, PARAMETERS)
    wanted, right = WANTED[name]
    return "" if right(value) else f"should be {wanted} (got {value!r})"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


WANTED: dict[str, tuple[str, Callable[[object], bool]]] = {
    **dict.fromkeys(("model", "hardware", "sandbox"), ("a name in quotes", _is_text)),
    "budget": ('a time in quotes such as "45m"', _is_text),
    **dict.fromkeys(("max_requests", "max_tokens"), ("a whole number above zero", _is_count)),
    "max_cost": ("a number of USD above zero", _is_amount),
}
