"""Take a vendor's libraries out of a worker's sandbox: where it would show one of their files, it shows a stub.

A submission can hide a name from a reader and a kernel from a profiler, but no library that is absent runs. torch links to these
libraries and loads with the stubs. Its own kernels, and what is compiled from source, run as before.
"""

from __future__ import annotations

import functools
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from arena.judge.stub_library import stub
from arena.paths import secrets
from arena.sandboxes import SandboxSpec
from arena.sandboxes.host import survey
from arena.sandboxes.profile import profile
from arena.sandboxes.python_env import current_python
from arena.schema import VendorLibrary

PREFIXES: Mapping[VendorLibrary, tuple[str, ...]] = {
    "cuBLAS": ("libcublas", "libnvblas"),  # with cuBLASLt, cuBLASXt and cuBLASMp
    "cuDNN": ("libcudnn",),
    "cuSPARSE": ("libcusparse",),  # with cuSPARSELt
    "cuTENSOR": ("libcutensor",),
    "TensorRT": ("libnvinfer", "libnvonnxparser"),
}
"""How the names of its files begin. What follows is a part, a version, `_static.a`, or a hash that a wheel's build adds."""
EMPTY_ARCHIVE = b"!<arch>\n"
"""What a linker finds in the place of a static library."""


def without(spec: SandboxSpec, libraries: tuple[VendorLibrary, ...]) -> SandboxSpec:
    """The same sandbox with a stub in the place of every file of these libraries that it would show."""
    if not libraries:
        return spec
    python = current_python(spec.packages)
    shown = profile(spec, python, survey(secrets())).shown
    return replace(spec, replaced=stubs(shown, libraries, python.hidden))


@functools.cache
def stubs(shown: tuple[Path, ...], libraries: tuple[VendorLibrary, ...], covered: tuple[Path, ...] = ()) -> Mapping[Path, bytes]:
    """What to show in the place of each file of these libraries that is one of the paths or lies below one.

    Finding them takes about a second for 150,000 files, so a process does it once for each set of libraries. Folders of the host
    that the sandbox covers need no look.
    """
    resolved = {path: path.resolve() for path in shown}
    found: dict[Path, VendorLibrary] = {}
    for path in _files(shown, set(map(str, covered))):
        for library in libraries:
            if not path.name.startswith(PREFIXES[library]):
                continue
            if path.is_symlink():  # what it leads to may have any name
                if not path.is_file():  # what it led to is gone, or it leads to itself
                    continue
                target = path.resolve()
                inside = (top / target.relative_to(real) for top, real in resolved.items() if target.is_relative_to(real))
                found |= dict.fromkeys(inside, library)
            else:
                found[path] = library
    return {path: _stub(path, library) for path, library in found.items()}


def _files(shown: tuple[Path, ...], covered: set[str]) -> Iterator[Path]:
    """Files below the paths, or the paths themselves, whose names begin as one of a library's."""
    prefixes = tuple(prefix for each in PREFIXES.values() for prefix in each)
    for top in shown:
        if top.name.startswith(prefixes) and top.is_file():
            yield top
        for folder, folders, names in os.walk(top):
            if covered:
                folders[:] = [name for name in folders if f"{folder}/{name}" not in covered]
            yield from (Path(folder, name) for name in names if name.startswith(prefixes))


def _stub(path: Path, library: VendorLibrary) -> bytes:
    """A stub of a shared object, an empty archive for a static library, and an empty file for anything else."""
    if path.suffix == ".a":
        return EMPTY_ARCHIVE
    try:
        with path.open("rb") as file:
            return stub(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), library) or b""
    except (OSError, ValueError, IndexError, struct.error):  # unreadable, empty or damaged: it does not load either
        return b""
