"""Where things are: in a checkout (or an editable install of one), and in a plain install. Importing it does nothing."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def checkout() -> Path | None:
    """The folder of the source tree, when arena runs from one."""
    root = PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "problems").is_dir() else None


def problems() -> Path:
    """Folder of the shipped problems, one folder each, and their kit."""
    return (checkout() or PACKAGE / "_data") / "problems"


def harnesses() -> Path:
    """Folder of the shipped harnesses, one YAML file each."""
    return (checkout() or PACKAGE / "_data") / "harnesses"


def cli() -> Path:
    """Where the agents' programs are installed, one folder each: $ARENA_CLI, else the checkout's cache, else the user's data."""
    if chosen := os.environ.get("ARENA_CLI"):
        return Path(chosen).expanduser().resolve()
    if root := checkout():
        return root / ".cache" / "cli"
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (data if data.is_absolute() else Path.home() / ".local" / "share") / "arena" / "cli"


def hardware() -> Path:
    """Folder of the hardware tables, one YAML file each."""
    return PACKAGE / "hardware"


def canary() -> Path:
    """Folder of a problem that is in no list: so plain that scoring it tells of the machine. The judge alone reads it."""
    return PACKAGE / "doctor" / "canary"


def home() -> Path:
    """Where runs and results go: $ARENA_HOME, else the checkout, else the current directory."""
    chosen = os.environ.get("ARENA_HOME")
    return Path(chosen).expanduser().resolve() if chosen else checkout() or Path.cwd()


def workspaces() -> Path:
    """Folder of the runs, one folder each."""
    return home() / "workspaces"


def annotations() -> Path:
    """Folder of the records of all runs: the source of every published number."""
    return home() / "annotations"


def baselines() -> Path:
    """Folder of what libraries reach, one folder per hardware. Never a score, and nothing that an agent may see."""
    return home() / "baselines"


def leaderboard() -> Path:
    """Folder that is rendered from the annotations and the baselines."""
    return home() / "leaderboard"


def cache() -> Path:
    """What may be deleted at any time: measured ceilings and built sandbox parts."""
    # The XDG specification: a relative path there is invalid and must be ignored.
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (chosen if chosen.is_absolute() else Path.home() / ".cache") / "arena"


def config() -> Path:
    """The user's own routes and keys."""
    chosen = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (chosen if chosen.is_absolute() else Path.home() / ".config") / "arena"


def keys() -> Path:
    """Folder of the keys to models, one file each."""
    chosen = os.environ.get("ARENA_KEYS")
    return Path(chosen).expanduser() if chosen else config() / "keys"


def secrets() -> tuple[Path, ...]:
    """What no sandbox may show, as far as it exists: hidden inputs, solutions, ceilings, other runs, their history, keys."""
    root = checkout()
    history = (root / ".git", root / "tests") if root else ()
    results = (workspaces(), annotations(), baselines(), leaderboard())
    kept = (PACKAGE, problems(), harnesses(), *results, cache(), config(), keys(), *history)
    return tuple(path for path in kept if path.exists())
