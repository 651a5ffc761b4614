"""The Python of a sandbox: the interpreter that runs arena, and of its packages only those that torch and Triton need.

The whole site-packages is never shown: it holds arena, or a `.pth` line that leads to it, with its ceilings and hidden inputs.
"""

from __future__ import annotations

import functools
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from arena.errors import SandboxError

ALLOWED = ("torch", "numpy", "triton", "ninja", "setuptools", "wheel", "cuda-bindings")
"""Packages that a submission may import, with their requirements. `cuda-bindings` maps the judge's GPU buffers."""
PROGRAMS = ("ninja",)  # programs of these packages that torch looks for on PATH when it compiles extensions


@dataclass(frozen=True)
class PythonEnvironment:
    """A Python as a sandbox sees it. Host paths are resolved and exist."""

    version: str  # such as `3.11`; part of its folders' names
    interpreter: str  # the interpreter inside the sandbox; /opt/venv/bin/python points to it
    prefix: Path | None = None  # host folder bound at /opt/python; None when the interpreter is part of /usr
    library_path: str = ""  # LD_LIBRARY_PATH that this interpreter needs to start
    packages: tuple[Path, ...] = ()  # files and folders bound into the sandbox's site-packages
    commands: Mapping[str, Path | bytes] | None = None
    """Programs of those packages for /opt/venv/bin: a binary of the host, or the text of a script."""
    hidden: tuple[Path, ...] = ()  # package folders of the host below `prefix` or /usr, which are covered


@functools.cache
def current_python(packages: tuple[str, ...] = ()) -> PythonEnvironment:
    """The Python of this process with the packages that a sandbox shows, these among them."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    base = Path(sys.base_prefix).resolve()
    inside = base if base.is_relative_to("/usr") else Path("/opt/python")
    program = next((name for name in (f"python{version}", "python3") if (base / "bin" / name).exists()), None)
    if program is None:
        raise SandboxError(
            f"no python{version} in {base / 'bin'}, which this Python names as its base; use another Python for arena"
        )
    moved = inside != base
    distributions = closure((*ALLOWED, *packages))
    return PythonEnvironment(
        version=version,
        interpreter=str(inside / "bin" / program),
        prefix=base if moved else None,
        # A build with a shared libpython has the path of its library written into it, which the sandbox does not have.
        library_path=str(inside / "lib") if moved and sysconfig.get_config_var("Py_ENABLE_SHARED") else "",
        packages=tuple(sorted({entry for found in distributions for entry in entries(found)})),
        commands=dict(command for found in distributions for command in commands(found)),
        hidden=tuple(sorted(set(package_folders(base)) | set(package_folders(Path("/usr"))))),
    )


def closure(roots: tuple[str, ...]) -> list[metadata.Distribution]:
    """The installed distributions among `roots`, and those that they require."""
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    queue = [(root, "") for root in roots]
    while queue:
        name, extra = queue.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = distribution
        queue += required(distribution.requires or [], extra)
    return list(found.values())


def required(requirements: list[str], extra: str) -> Iterator[tuple[str, str]]:
    """(name, extra) of each requirement, for one extra or for none ("").

    Of a marker only `extra == "..."` is read: a package that only other systems require is not installed here.
    """
    for requirement in requirements:
        specifier, _, marker = requirement.partition(";")
        wanted = re.findall(r"""extra\s*==\s*['"]([^'"]+)['"]""", marker)
        match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?", specifier)
        if match is None or (_normal(extra) not in map(_normal, wanted) if wanted or extra else False):
            continue
        name = _normal(match[1])
        yield name, ""
        for inner in (match[2] or "").split(","):
            if inner.strip():
                yield name, inner.strip()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _record(distribution: metadata.Distribution) -> set[str]:
    """Installed files, relative to its site-packages. torch has 15,000: RECORD as text takes a tenth of `.files`' time."""
    text = distribution.read_text("RECORD")
    if text is None:
        return {str(file) for file in distribution.files or ()}
    return {line.rsplit(",", 2)[0].strip('"') for line in text.splitlines()}


def entries(distribution: metadata.Distribution) -> Iterator[Path]:
    """Top-level files and folders of a distribution in its site-packages."""
    site = Path(str(distribution.locate_file(""))).resolve()
    for name in {file.split("/", 1)[0] for file in _record(distribution)} - {"", ".", "..", "__pycache__"}:
        if (site / name).exists():
            yield site / name


def commands(distribution: metadata.Distribution) -> Iterator[tuple[str, Path | bytes]]:
    """Its `PROGRAMS`: a binary as it is, an entry point as a script for the sandbox's own interpreter."""
    for point in distribution.entry_points:
        if point.group == "console_scripts" and point.name in PROGRAMS:
            called = f"from {point.module} import {point.attr}\nsys.exit({point.attr}())"
            yield point.name, f"#!/opt/venv/bin/python\nimport sys\n{called}\n".encode()
            return
    ends = tuple(f"/bin/{name}" for name in PROGRAMS)
    for file in _record(distribution):
        if f"/{file}".endswith(ends) and (path := Path(str(distribution.locate_file(file)))).is_file():
            yield path.name, path.resolve()


def package_folders(prefix: Path) -> Iterator[Path]:
    """Folders of installed packages below a prefix: its own, and those of environments inside it, of pyenv, conda or ours."""
    for pattern in ("lib*/python3*/*-packages", "local/lib*/python3*/*-packages", "envs", "pkgs"):
        for folder in prefix.glob(pattern):
            if folder.is_dir():
                yield folder.resolve()
    own = Path(sys.prefix).resolve()
    if own != Path(sys.base_prefix).resolve() and own.is_relative_to(prefix):
        yield own
