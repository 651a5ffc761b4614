"""What this machine has of the things that a box gets, looked up before each start."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

ETC = (
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "OpenCL",
    "ssl/certs",
    "ssl/openssl.cnf",
    "vulkan",
)
"""The files of /etc that a box sees; accounts and names are made up instead."""


@dataclass(frozen=True)
class Host:
    """All paths exist; the secret ones are resolved."""

    system: tuple[tuple[str, str | None], ...] = ()
    """/bin and its like: (path, what it links to), or (path, None) for a folder."""
    etc: tuple[Path, ...] = ()
    devices: tuple[Path, ...] = ()
    """GPU device nodes."""
    cuda: bool = False
    """Whether /usr/local/cuda/bin is there."""
    library_path: tuple[str, ...] = ()
    """Folders below /usr that the host's loader is told of: the GPU driver's, on some machines."""
    secret_folders: tuple[Path, ...] = ()
    secret_files: tuple[Path, ...] = ()


def survey(secrets: tuple[Path, ...]) -> Host:
    """Look. `secrets` are covered wherever a folder that a box gets contains them."""
    system: list[tuple[str, str | None]] = []
    for path in map(Path, ("/bin", "/sbin", "/lib", "/lib32", "/lib64")):
        if path.is_symlink():
            system.append((str(path), str(path.readlink())))
        elif path.is_dir():
            system.append((str(path), None))
    resolved = [secret.resolve() for secret in secrets if secret.exists()]
    told = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return Host(
        system=tuple(system),
        etc=tuple(path for name in ETC if (path := Path("/etc", name)).exists()),
        devices=tuple(sorted(Path("/dev").glob("nvidia*"))),
        cuda=Path("/usr/local/cuda/bin").is_dir(),
        library_path=tuple(entry for entry in told if entry.startswith("/usr/") and Path(entry).is_dir()),
        secret_folders=tuple(path for path in resolved if path.is_dir()),
        secret_files=tuple(path for path in resolved if not path.is_dir()),
    )
