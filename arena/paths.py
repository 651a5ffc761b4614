"""Folders of arena: in a checkout (or an editable install of one), and in a plain install. Importing it does nothing."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def checkout() -> Path | None:
    """The source tree, when arena runs from one."""
    root = PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "problems").is_dir() else None


def problems() -> Path:
    """Folder of the shipped problems, one folder each, and their kit."""
    return (checkout() or PACKAGE / "_data") / "problems"


def own_problems() -> tuple[Path, ...]:
    """Folders of the user's own problems: $ARENA_PROBLEMS, separated by `:`; the shipped kit serves them too."""
    named = os.environ.get("ARENA_PROBLEMS", "").split(":")
    return tuple(dict.fromkeys(Path(folder).expanduser().resolve() for folder in named if folder))


def harnesses() -> Path:
    """Folder of the shipped harnesses, one YAML file each."""
    return (checkout() or PACKAGE / "_data") / "harnesses"


def cli() -> Path:
    """Folder of the installed agent CLIs, one folder each: $ARENA_CLI, else the checkout's cache, else the user's data folder."""
    if chosen := os.environ.get("ARENA_CLI"):
        return Path(chosen).expanduser().resolve()
    if root := checkout():
        return root / ".cache" / "cli"
    return _xdg("XDG_DATA_HOME", ".local/share") / "cli"


def hardware() -> Path:
    """Folder of the hardware tables, one YAML file each."""
    return PACKAGE / "hardware"


def canary() -> Path:
    """Folder of the canary, an unlisted problem so plain that a failure is the machine's. Only the judge reads it."""
    return PACKAGE / "doctor" / "canary"


def home() -> Path:
    """Folder of runs and results: $ARENA_HOME, else the checkout, else the current directory."""
    chosen = os.environ.get("ARENA_HOME")
    return Path(chosen).expanduser().resolve() if chosen else checkout() or Path.cwd()


def workspaces() -> Path:
    """Folder of the run folders."""
    return home() / "workspaces"


def annotations() -> Path:
    """Folder of the annotations, one per run: the source of every published number."""
    return home() / "annotations"


def baselines() -> Path:
    """Folder of the measured baselines, one folder per hardware. They are never scores, and no agent may see them."""
    return home() / "baselines"


def curves() -> Path:
    """Folder of the scored snapshots, one file per run. No agent may see them."""
    return home() / "curves"


def site() -> Path:
    """Folder of the rendered pages, unless another is chosen. They may hold solutions, and no agent may see them."""
    return home() / "site"


def leaderboard() -> Path:
    """Folder of the leaderboard, rendered from the annotations and the baselines."""
    return home() / "leaderboard"


def sweeps() -> Path:
    """Folder of the sweeps, one folder each: its file, its lock, and what its processes wrote on standard error."""
    return home() / "sweeps"


def cache() -> Path:
    """Folder that may be deleted at any time: measured ceilings and built parts of the sandbox."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def config() -> Path:
    """Folder of the user's own models, routes and keys."""
    return _xdg("XDG_CONFIG_HOME", ".config")


def keys() -> Path:
    """Folder of the API keys, one file each."""
    chosen = os.environ.get("ARENA_KEYS")
    return Path(chosen).expanduser() if chosen else config() / "keys"


def secrets() -> tuple[Path, ...]:
    """Existing paths that no sandbox may show: hidden inputs, solutions, ceilings, other runs, their history, keys."""
    root = checkout()
    history = (root / ".git", root / "tests") if root else ()
    results = (workspaces(), annotations(), baselines(), curves(), leaderboard(), sweeps(), site())
    kept = (PACKAGE, problems(), *own_problems(), harnesses(), *results, cache(), config(), keys(), *history)
    return tuple(path for path in kept if path.exists())


def _xdg(variable: str, default: str) -> Path:
    """Arena's folder below a base folder of the XDG specification, which says to ignore a relative path in its variables."""
    chosen = Path(os.environ.get(variable, ""))
    return (chosen if chosen.is_absolute() else Path.home() / default) / "arena"
