"""Agent CLIs: where npm, pip or a download installs them, which version is there, and how to install what is missing."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from arena import paths
from arena.errors import ArenaError, UsageError
from arena.schema import Cli, Download, Harness
from arena.system import process

INSIDE = "/opt/cli"
"""Where the sandbox shows the CLI's folder."""
NPM_BIN, BIN = "node_modules/.bin", "bin"
"""Folders of the programs: those of npm; those of pip and of downloads."""
PYTHON, FILES, SUMS = "python", "files", "downloads.json"
"""Python packages; what was downloaded; its versions and digests."""
INSTALL_LIMIT_S, DOWNLOAD_S, ASK_S = 1800.0, 60.0, 60.0
DOWNLOAD_BYTES = 2 << 30
STARTER = """#!/usr/bin/env -S python -I
import sys

sys.path.insert(0, "{inside}/{python}")
from {module} import {name}

sys.exit({call}())
"""
"""A command of a Python package. pip's own names the folder outside the sandbox; a variable would reach the agent's tools."""


class Package(NamedTuple):
    """One package of a CLI."""

    source: Literal["npm", "pip", "url"]
    name: str
    version: str
    download: Download | None = None

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class InstalledCli:
    """One installed agent CLI."""

    folder: Path
    """Where it lies: `node_modules`, or `python` or `files` with `bin`."""
    package: str
    version: str

    def recorded(self, cli: Cli) -> dict[str, str]:
        """For a run's manifest: package, version, and the sha256 of the started file and of the list of all packages."""
        return {
            "package": self.package,
            "version": self.version,
            "sha256": _digest(_program(self.folder, cli).resolve()),
            # The list has the digest of every package or file; the started file may be a script of few lines.
            "lock_sha256": _lock(self.folder),
        }


class Outdated(NamedTuple):
    """One package of a CLI, for people who look for newer versions."""

    harness: str
    package: str
    source: str
    pinned: str
    installed: str | None
    newest: str | None
    """None where no registry says it."""


def folder(harness: str) -> Path:
    """Where a harness's CLI is installed, or will be."""
    return paths.cli() / harness


def installed(harness: Harness) -> InstalledCli | None:
    """The harness's CLI; None when it needs none. UsageError with the command to type when it is absent or does not fit."""
    if harness.cli is None:
        return None
    where, (first, *others) = folder(harness.name), packages(harness.cli)
    advice = f"run `arena install {harness.name}`"
    version = _version(where, first)
    if version is None:
        raise UsageError(f"{harness.title} is not installed in {where}; {advice}")
    for other in others:
        if (there := _version(where, other)) != other.version:
            raise UsageError(f"{harness.title} needs {other.name} {other.version}, and {where} has {there or 'none'}; {advice}")
    if not (program := _program(where, harness.cli)).exists():
        raise UsageError(f"{program.parent} has no {program.name}, as {first.name} {version} should; {advice}")
    if not fits(version, harness.cli.versions):
        raise UsageError(
            f"{first.name} {version} is installed in {where}, and arena supports {harness.cli.versions} "
            f"(tried: {first.version}); {advice}"
        )
    return InstalledCli(where, first.name, version)


def install(harness: Harness) -> bool:
    """Install a harness's CLI in the versions that were tried. True when anything was missing.

    Raises:
        UsageError: the harness has no CLI, or npm or pip is missing.
        ArenaError: npm, pip or a download failed, and the text ends with its own messages; or what came does not fit.
    """
    if harness.cli is None:
        raise UsageError(f"harness {harness.name} needs no CLI")
    where, wanted = folder(harness.name), packages(harness.cli)
    if all(_version(where, each) == each.version for each in wanted) and _program(where, harness.cli).exists():
        return False
    where.mkdir(parents=True, exist_ok=True)
    by_source = {source: [each for each in wanted if each.source == source] for source in ("npm", "pip", "url")}
    if by_source["npm"]:
        _npm(harness, where, by_source["npm"])
    if by_source["pip"]:
        _pip(harness, where, by_source["pip"])
    for each in by_source["url"]:
        assert each.download is not None
        _download(where, each.download, harness.cli.program)
    installed(harness)
    return True


def outdated(harness: Harness) -> list[Outdated]:
    """The harness's packages: pinned, installed, and the newest that npm or PyPI knows."""
    if harness.cli is None:
        return []
    where = folder(harness.name)
    return [
        Outdated(harness.name, each.name, each.source, each.version, _version(where, each), _newest(each))
        for each in packages(harness.cli)
    ]


def packages(cli: Cli) -> list[Package]:
    """The packages of a CLI, the CLI itself first."""
    return [_package(entry) for entry in cli.packages]


def fits(version: str, wanted: str) -> bool:
    """Whether a version lies in a range such as `>=2.1,<3`."""
    try:
        return Version(version) in SpecifierSet(wanted, prereleases=True)
    except InvalidVersion:
        return False


def _package(entry: str | Download) -> Package:
    """A package of `name@version`, where the name may begin with an @, of `pip:name@version`, or of a download."""
    if isinstance(entry, Download):
        return Package("url", entry.name, entry.version, entry)
    name, _, version = entry.removeprefix("pip:").rpartition("@")
    return Package("pip" if entry.startswith("pip:") else "npm", name, version)


def _version(where: Path, package: Package) -> str | None:
    """The version that is installed; None without one."""
    if package.source == "pip":
        found = importlib.metadata.distributions(name=package.name, path=[str(where / PYTHON)])
        return next((entry.version for entry in found), None)
    try:
        if package.source == "npm":
            return str(json.loads((where / "node_modules" / package.name / "package.json").read_text())["version"])
        kept = json.loads((where / SUMS).read_text())[package.name]
        assert package.download is not None
        return str(kept["version"]) if kept["sha256"] == package.download.sha256 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _newest(package: Package) -> str | None:
    """The newest version that the registry knows; None where it says nothing."""
    if package.source == "npm" and (npm := shutil.which("npm")):
        done = process.run([npm, "view", package.name, "version", "--loglevel=error"], limit_s=ASK_S)
        found = re.search(rb"^\S+$", done.stdout, re.MULTILINE)
    elif package.source == "pip":
        done = process.run([*_pip_command(), "index", "versions", package.name], limit_s=ASK_S)
        found = re.search(rb"(?<=\()[^)\s]+(?=\))", done.stdout)
    else:
        return None
    return found[0].decode() if found and not done.returncode else None


def _program(where: Path, cli: Cli) -> Path:
    """The file that is started."""
    return where / (NPM_BIN if _package(cli.packages[0]).source == "npm" else BIN) / cli.program


def _npm(harness: Harness, where: Path, wanted: Sequence[Package]) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise UsageError("npm is not on PATH: install Node.js with npm (Debian and Ubuntu: apt-get install npm)")
    names = [f"{each.name}@{each.version}" for each in wanted]
    _installer(
        harness, where, "npm", [npm, "install", "--prefix", str(where), "--no-fund", "--no-audit", "--loglevel=error", *names]
    )


def _pip(harness: Harness, where: Path, wanted: Sequence[Package]) -> None:
    """Python packages of their own, beside arena's, and a starter for the CLI's command."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(where / PYTHON)  # pip would leave the files of another version in place
    names = [f"{each.name}=={each.version}" for each in wanted]
    _installer(harness, where, "pip", [*_pip_command(), "install", "--target", str(where / PYTHON), "-q", *names])
    assert harness.cli is not None
    for entry in importlib.metadata.distributions(name=wanted[0].name, path=[str(where / PYTHON)]):
        for point in entry.entry_points.select(group="console_scripts", name=harness.cli.program):
            name = point.attr.partition(".")[0]
            text = STARTER.format(inside=INSIDE, python=PYTHON, module=point.module, name=name, call=point.attr)
            _write_program(where / BIN / harness.cli.program, text)


def _pip_command() -> list[str]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]


def _installer(harness: Harness, where: Path, what: str, command: list[str]) -> None:
    done = process.run(command, limit_s=INSTALL_LIMIT_S)
    if done.timed_out or done.returncode:
        why = f"not done after {INSTALL_LIMIT_S:.0f} s" if done.timed_out else f"exit code {done.returncode}"
        raise ArenaError(
            f"{what} could not install {harness.title} in {where} ({why}): {done.stderr.decode(errors='replace').strip()}"
        )


def _download(where: Path, download: Download, program: str) -> None:
    """Fetch, compare the digest, unpack, and link the program. ArenaError."""
    files, link = where / FILES / download.name, where / BIN / program
    with tempfile.NamedTemporaryFile(dir=where, suffix=".tmp") as kept:
        digest, size = hashlib.sha256(), 0
        try:
            with urllib.request.urlopen(download.url, timeout=DOWNLOAD_S) as answer:
                while (piece := answer.read(1 << 20)) and size <= DOWNLOAD_BYTES:
                    digest.update(piece)
                    kept.write(piece)
                    size += len(piece)
        except (OSError, ValueError) as error:
            raise ArenaError(f"{download.url}: cannot be fetched: {error}") from None
        if digest.hexdigest() != download.sha256:
            raise ArenaError(
                f"{download.url}: its sha256 is {digest.hexdigest()}, and the harness names {download.sha256}: nothing is kept"
            )
        kept.flush()
        shutil.rmtree(files, ignore_errors=True)
        files.mkdir(parents=True)
        _unpack(Path(kept.name), files, program, download.url)
    found = [path for path in files.rglob(program) if path.is_file() and not path.is_symlink()]
    if len(found) != 1:
        raise ArenaError(f"{download.url}: holds {len(found)} files named {program}: name one that it holds once")
    found[0].chmod(0o755)
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(found[0], link.parent))  # relative: the sandbox shows the folder at another place
    sums = json.loads((where / SUMS).read_text()) if (where / SUMS).exists() else {}
    (where / SUMS).write_text(json.dumps(sums | {download.name: {"version": download.version, "sha256": download.sha256}}))


def _unpack(archive: Path, into: Path, program: str, url: str) -> None:
    try:
        if tarfile.is_tarfile(archive):
            with tarfile.open(archive) as tar:
                tar.extractall(into, filter="data")
        elif zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(into)
        else:
            shutil.copyfile(archive, into / program)
    except (tarfile.TarError, zipfile.BadZipFile, OSError) as error:
        raise ArenaError(f"{url}: cannot be unpacked: {error}") from None


def _write_program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def _lock(where: Path) -> str:
    """sha256 of npm's list of packages, of pip's lists of files, and of the downloads' digests; empty without any."""
    files = [where / "node_modules" / ".package-lock.json", *sorted((where / PYTHON).glob("*.dist-info/RECORD")), where / SUMS]
    found = [path for path in files if path.exists()]
    if len(found) == 1:
        return _digest(found[0])
    return hashlib.sha256("".join(map(_digest, found)).encode()).hexdigest() if found else ""


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
