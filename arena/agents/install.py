"""The agents' own programs: where npm put them, which version that is, and what to type where they are missing."""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from arena import paths
from arena.errors import UsageError
from arena.schema import Harness

INSIDE = "/opt/cli"
"""Where a program's folder is seen in the sandbox."""
BIN = "node_modules/.bin"


@dataclass(frozen=True)
class InstalledCli:
    """One installed program."""

    folder: Path
    """What npm made: it holds `node_modules`."""
    package: str
    version: str

    def recorded(self, program: str) -> dict[str, str]:
        """For a run's manifest: package, version, and the sha256 of the file that is started and of npm's list of packages."""
        lock = self.folder / "node_modules" / ".package-lock.json"
        return {
            "package": self.package,
            "version": self.version,
            "sha256": _digest((self.folder / BIN / program).resolve()),
            # npm's own list has the digest of all that was fetched; what is started may be a script of few lines.
            "lock_sha256": _digest(lock) if lock.exists() else "",
        }


def folder(harness: str) -> Path:
    """Where a harness's program is, or is to be."""
    return paths.cli() / harness


def split(package: str) -> tuple[str, str]:
    """Name and version of `name@version`, where the name may begin with an @."""
    name, _, version = package.rpartition("@")
    return name, version


def install(harness: Harness) -> list[str]:
    """The command that installs a harness's program, in the version that was tried."""
    assert harness.cli is not None
    return ["npm", "install", "--prefix", str(folder(harness.name)), "--no-fund", "--no-audit", *harness.cli.packages]


def found(harness: Harness) -> InstalledCli | None:
    """The harness's program; None when it needs none. UsageError with what to type when it is not there or does not fit."""
    if harness.cli is None:
        return None
    where, (name, tried) = folder(harness.name), split(harness.cli.packages[0])
    advice = f"install it: {shlex.join(install(harness))}"
    version = _version(where, name)
    if version is None:
        raise UsageError(f"{harness.title} is not installed in {where}; {advice}")
    for other, wanted in map(split, harness.cli.packages[1:]):
        if (there := _version(where, other)) != wanted:
            raise UsageError(f"{harness.title} needs {other} {wanted}, and {where} has {there or 'none'}; {advice}")
    if not (where / BIN / harness.cli.program).exists():
        raise UsageError(f"{where / BIN} has no {harness.cli.program}, as {name} {version} should; {advice}")
    if not fits(version, harness.cli.versions):
        raise UsageError(
            f"{name} {version} is installed in {where}, and arena knows {harness.cli.versions} (tried: {tried}); {advice}"
        )
    return InstalledCli(where, name, version)


def _version(where: Path, name: str) -> str | None:
    try:
        return str(json.loads((where / "node_modules" / name / "package.json").read_text())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fits(version: str, wanted: str) -> bool:
    """Whether a version lies in a range such as `>=2.1,<3`."""
    try:
        return Version(version) in SpecifierSet(wanted, prereleases=True)
    except InvalidVersion:
        return False
