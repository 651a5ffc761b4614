"""The problems, the harnesses with their models, and the hardware. Each is read from its YAML when it is needed.

A broken file raises only when it is named, or when all files are read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TypeVar

from arena import paths
from arena.errors import DataError, UsageError
from arena.files.documents import read_all, read_yaml, unknown
from arena.schema import Hardware, Harness, Model, OwnModels, Problem, Profile, RuleSets

R = TypeVar("R")
UNDIGESTED = ("solutions", "baselines")
"""Folders of a problem that change neither the task nor the judging."""


def problem(name: str, folder: Path | None = None) -> Problem:
    """The problem of that name: a shipped one, or one in a folder of $ARENA_PROBLEMS. `folder` replaces all of these."""
    path = _file("problem", name, _problem_files(folder))
    found = read_yaml(path, Problem, name=name)
    if not any(entry.startswith("@") for entry in found.forbidden):
        return found
    known = read_yaml(_rules(folder), RuleSets).sets
    if wrong := [entry for entry in found.forbidden if entry.startswith("@") and entry[1:] not in known]:
        raise DataError(f"{path}: forbidden: {unknown('set of names', wrong[0][1:], known)}")
    names = (known[entry[1:]] if entry.startswith("@") else (entry,) for entry in found.forbidden)
    return found.model_copy(update={"forbidden": tuple(dict.fromkeys(chain.from_iterable(names)))})


def problems(folder: Path | None = None) -> dict[str, Problem]:
    """All problems by name. One error lists the faults of all files."""
    return _all(_problem_files(folder), lambda name: problem(name, folder))


def problem_folder(name: str, folder: Path | None = None) -> Path:
    """The folder of the problem of that name."""
    return _file("problem", name, _problem_files(folder)).parent


def problem_names() -> list[str]:
    """The names of all problems, none of which is read."""
    return list(_problem_files(None))


def harness(name: str, folder: Path | None = None) -> Harness:
    """The harness of that name, with the user's own models; the files that it mounts must exist."""
    path = _file("harness", name, _yaml_files(folder or paths.harnesses()))
    found = read_yaml(path, Harness, name=name)
    if folder is None and (own := own_models().get(name)):
        found = found.model_copy(update={"models": {**found.models, **own}})
    for inside, file in found.files.items():
        if not (path.parent / file).is_file():
            raise DataError(f"{path}: files.{inside}: there is no file {file!r} beside it")
    if found.events and not (path.parent / found.events).is_file():
        raise DataError(f"{path}: events: there is no file {found.events!r} beside it")
    return found


def own_models() -> Mapping[str, Mapping[str, Model]]:
    """The user's own models by harness and name, from the file that $ARENA_MODELS names, else the user's folder. DataError."""
    named = os.environ.get("ARENA_MODELS")
    file = Path(named).expanduser() if named else paths.config() / "models.yaml"
    if not named and not file.exists():
        return {}
    models, shipped = read_yaml(file, OwnModels).models, _yaml_files(paths.harnesses())
    for name in models:
        if name not in shipped:
            raise DataError(f"{file}: models.{name}: {unknown('harness', name, shipped)}")
    return models


def harnesses(folder: Path | None = None) -> dict[str, Harness]:
    """All harnesses by name. One error lists the faults of all files."""
    return _all(_yaml_files(folder or paths.harnesses()), lambda name: harness(name, folder))


def hardware(name: str, folder: Path | None = None) -> Hardware:
    """The hardware of that name."""
    return read_yaml(_file("hardware", name, _yaml_files(folder or paths.hardware())), Hardware, name=name)


def hardwares(folder: Path | None = None) -> dict[str, Hardware]:
    """All hardware by name. One error lists the faults of all files."""
    return _all(_yaml_files(folder or paths.hardware()), lambda name: hardware(name, folder))


def hardware_of(device: str) -> Hardware:
    """The hardware of the device that torch or NVML reports under that name."""
    known = hardwares()
    for entry in known.values():
        if device in entry.device_names:
            return entry
    names = ", ".join(sorted(name for entry in known.values() for name in entry.device_names))
    raise UsageError(
        f"no hardware file lists the device {device!r}: add one under {paths.hardware()}, or choose --hardware cpu "
        f"(known: {names})"
    )


def readable_harnesses(folder: Path | None = None) -> tuple[dict[str, Harness], list[str]]:
    """The harnesses that can be read, by name, and the faults of the others: a broken file stops only those who need it."""
    readable, faults = {}, []
    for name in _yaml_files(folder or paths.harnesses()):
        try:
            readable[name] = harness(name, folder)
        except DataError as error:
            faults.append(str(error))
    return readable, faults


def problem_digest(name: str, folder: Path | None = None) -> str:
    """sha256 over the kit and the problem's files that decide the task and the judging, without solutions and baselines."""
    home, shipped = problem_folder(name, folder), folder or paths.problems()
    files = [path for path in home.rglob("*") if path.relative_to(home).parts[0] not in UNDIGESTED]
    kit = [path for path in (shipped / "kit").rglob("*") if path != _rules(folder) or _uses_rules(home / "problem.yaml")]
    return _digest((home.parent, files), (shipped, kit))


def solutions(folder: Path, profile: Profile) -> dict[str, Path]:
    """A problem's solutions for one profile, by name: `oracle_gpu.py` is the oracle on a GPU, and absent on a CPU."""
    return _for_profile(folder / "solutions", profile)


def baselines(folder: Path, profile: Profile) -> dict[str, Path]:
    """A problem's baselines for one profile, by name, as in `solutions`."""
    return _for_profile(folder / "baselines", profile)


def harness_digest(name: str, folder: Path | None = None) -> str:
    """sha256 over the harness's YAML, its Python file, and the files that it mounts or reads events with."""
    home, found = folder or paths.harnesses(), harness(name, folder)
    beside = [home / file for file in (*found.files.values(), found.events) if file]
    return _digest((home, [home / f"{name}.yaml", home / f"{name}.py", *beside]))


def _rules(folder: Path | None) -> Path:
    """The file of the sets of forbidden names. It decides only problems that name one of them."""
    return (folder or paths.problems()) / "kit" / "rules.yaml"


def _uses_rules(path: Path) -> bool:
    return any(entry.startswith("@") for entry in read_yaml(path, Problem, name=path.parent.name).forbidden)


def _for_profile(folder: Path, profile: Profile) -> dict[str, Path]:
    found = {path.stem: path for path in sorted(folder.glob("*.py"))}
    own = {stem.removesuffix(f"_{profile}"): path for stem, path in found.items() if stem.endswith(f"_{profile}")}
    return {stem: path for stem, path in found.items() if not stem.endswith(("_cpu", "_gpu"))} | own


def _problem_files(folder: Path | None) -> dict[str, Path]:
    """The problem.yaml of each name. UsageError when two folders have the same name, or one of them is not there."""
    found: dict[str, Path] = {}
    for home in (folder,) if folder else (paths.problems(), *paths.own_problems()):
        if not home.is_dir():
            raise UsageError(f"{home}: there is no such folder; $ARENA_PROBLEMS (or --problems) names it as one of problems")
        for path in sorted(home.glob("*/problem.yaml")):
            if (other := found.setdefault(path.parent.name, path)) is not path:
                both = f"{other.parent} and {path.parent}"
                raise UsageError(f"two problems are called {path.parent.name!r}: {both}; rename the folder of one of them")
    return found


def _yaml_files(folder: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def _file(kind: str, name: str, files: Mapping[str, Path]) -> Path:
    if name not in files:
        raise UsageError(unknown(kind, name, files))
    return files[name]


def _all(names: Collection[str], read: Callable[[str], R]) -> dict[str, R]:
    return dict(zip(names, read_all(names, read), strict=True))


def _digest(*below: tuple[Path, Iterable[Path]]) -> str:
    """sha256 over the sorted names of the files below each root, and the bytes. Lengths separate a file from the next one."""
    named = {path.relative_to(root): path for root, files in below for path in files if path.is_file()}
    total = hashlib.sha256()
    for name, path in sorted(named.items()):
        if "__pycache__" not in name.parts:
            data = path.read_bytes()
            total.update(f"{name.as_posix()}\0{len(data)}\0".encode() + data)
    return total.hexdigest()
