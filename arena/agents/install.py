"""Agent CLIs: where npm installs them, which version is there, and how to install what is missing."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from arena import paths
from arena.errors import ArenaError, UsageError
from arena.schema import Harness
from arena.system import process

INSIDE = "/opt/cli"
"""Where the sandbox shows the CLI's folder."""
BIN = "node_modules/.bin"
INSTALL_LIMIT_S = 1800.0


@dataclass(frozen=True)
class InstalledCli:
    """One installed agent CLI."""

    folder: Path
    """Where npm installed it: it holds `node_modules`."""
    package: str
    version: str

    def recorded(self, program: str) -> dict[str, str]:
        """For a run's manifest: package, version, and the sha256 of the started file and of npm's list of packages."""
        lock = self.folder / "node_modules" / ".package-lock.json"
        return {
            "package": self.package,
            "version": self.version,
            "sha256": _digest((self.folder / BIN / program).resolve()),
            # npm's own list has the digest of every package; the started file may be a script of few lines.
            "lock_sha256": _digest(lock) if lock.exists() else "",
        }


def folder(harness: str) -> Path:
    """Where a harness's CLI is installed, or will be."""
    return paths.cli() / harness


def installed(harness: Harness) -> InstalledCli | None:
    """The harness's CLI; None when it needs none. UsageError with the command to type when it is absent or does not fit."""
    if harness.cli is None:
        return None
    where, (name, tried) = folder(harness.name), _split(harness.cli.packages[0])
    advice = f"run `arena install {harness.name}`"
    version = _version(where, name)
    if version is None:
        raise UsageError(f"{harness.title} is not installed in {where}; {advice}")
    for other, wanted in map(_split, harness.cli.packages[1:]):
        if (there := _version(where, other)) != wanted:
            raise UsageError(f"{harness.title} needs {other} {wanted}, and {where} has {there or 'none'}; {advice}")
    if not (where / BIN / harness.cli.program).exists():
        raise UsageError(f"{where / BIN} has no {harness.cli.program}, as {name} {version} should; {advice}")
    if not fits(version, harness.cli.versions):
        raise UsageError(
            f"{name} {version} is installed in {where}, and arena supports {harness.cli.versions} (tried: {tried}); {advice}"
        )
    return InstalledCli(where, name, version)


def install(harness: Harness) -> bool:
    """Install a harness's CLI by npm, in the versions that were tried. True when anything was missing.

    Raises:
        UsageError: the harness has no CLI, or npm is missing.
        ArenaError: npm failed, and the text ends with npm's own messages; or what npm installed does not fit.
    """
    if harness.cli is None:
        raise UsageError(f"harness {harness.name} needs no CLI")
    where = folder(harness.name)
    tried = all(_version(where, name) == version for name, version in map(_split, harness.cli.packages))
    if tried and (where / BIN / harness.cli.program).exists():
        return False
    npm = shutil.which("npm")
    if npm is None:
        raise UsageError("npm is not on PATH: install Node.js with npm (Debian and Ubuntu: apt-get install npm)")
    where.mkdir(parents=True, exist_ok=True)
    command = [npm, "install", "--prefix", str(where), "--no-fund", "--no-audit", "--loglevel=error", *harness.cli.packages]
    done = process.run(command, limit_s=INSTALL_LIMIT_S)
    if done.timed_out or done.returncode:
        why = f"not done after {INSTALL_LIMIT_S:.0f} s" if done.timed_out else f"exit code {done.returncode}"
        raise ArenaError(
            f"npm could not install {harness.title} in {where} ({why}): {done.stderr.decode(errors='replace').strip()}"
        )
    installed(harness)
    return True


def fits(version: str, wanted: str) -> bool:
    """Whether a version lies in a range such as `>=2.1,<3`."""
    try:
        return Version(version) in SpecifierSet(wanted, prereleases=True)
    except InvalidVersion:
        return False


def _split(package: str) -> tuple[str, str]:
    """Name and version of `name@version`, where the name may begin with an @."""
    name, _, version = package.rpartition("@")
    return name, version


def _version(where: Path, name: str) -> str | None:
    try:
        return str(json.loads((where / "node_modules" / name / "package.json").read_text())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
