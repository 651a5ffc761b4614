"""What this machine can show to a sandbox, looked up before each start."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from arena.errors import SandboxError
from arena.sandboxes import native

ETC = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "OpenCL"),
    *("ssl/certs", "ssl/openssl.cnf", "vulkan"),
)
"""The files of /etc that a sandbox sees; arena makes up its own accounts and names."""
NVIDIA_NODE = Path("/dev/nvidiactl")
"""There while the driver is loaded; a machine without it has no GPU that arena can use."""
PROFILER = Path("/opt/nvidia/nsight-compute")  # where /usr/local/cuda/bin/ncu looks for itself
RESOLVER = Path("/etc/resolv.conf")
PATH = ("/usr/local/cuda/bin", "/usr/local/bin", "/usr/bin", "/bin")
"""Folders of programs that host and sandbox share, in the order of the sandbox's PATH."""


def program(name: str) -> str | None:
    """Path of a program that host and sandbox both have; None when a sandbox would not find it."""
    found = shutil.which(name, path=":".join(PATH))
    return found if found and Path(found).resolve().is_relative_to("/usr") else None


def counters_closed() -> bool:
    """Whether the NVIDIA driver reserves the performance counters for administrators, which no sandbox is."""
    parameters = Path("/proc/driver/nvidia/params")
    return parameters.is_file() and "RmProfilingAdminOnly: 1" in parameters.read_text()


@dataclass(frozen=True)
class Host:
    """All paths exist; the secret ones are resolved."""

    system: tuple[tuple[str, str | None], ...] = ()  # /bin and its like: (path, what it links to), or (path, None) for a folder
    etc: tuple[Path, ...] = ()
    devices: tuple[Path, ...] = ()  # GPU device nodes
    cuda: bool = False  # whether /usr/local/cuda/bin is there
    profiler: bool = False  # whether `PROFILER` is there
    library_path: tuple[str, ...] = ()  # folders below /usr in the host's LD_LIBRARY_PATH: the GPU driver's, on some machines
    secret_folders: tuple[Path, ...] = ()
    secret_files: tuple[Path, ...] = ()
    replaced: Mapping[Path, bytes] = field(default_factory=dict)  # files to show with this content
    init: bytes | None = None  # process 1 as a compiled program; None: init.py

    @cached_property
    def secrets(self) -> tuple[tuple[str, Path], ...]:
        """The secret paths, each with its text and a slash: they are compared some 600 times per sandbox."""
        return tuple((f"{path}/", path) for path in (*self.secret_folders, *self.secret_files))

    resolver: bytes = b""  # text of /etc/resolv.conf, for a sandbox whose network is the host's


def survey(secrets: tuple[Path, ...]) -> Host:
    """Describe this machine. `secrets` are covered wherever a folder that a sandbox gets contains them."""
    folders = [path for path in map(Path, ("/bin", "/sbin", "/lib", "/lib32", "/lib64")) if path.is_symlink() or path.is_dir()]
    resolved = [secret.resolve() for secret in secrets if secret.exists()]
    library_path = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return Host(
        system=tuple((str(path), str(path.readlink()) if path.is_symlink() else None) for path in folders),
        etc=tuple(path for name in ETC if (path := Path("/etc", name)).exists()),
        devices=tuple(sorted(Path("/dev").glob("nvidia*"))),
        cuda=Path("/usr/local/cuda/bin").is_dir(),
        profiler=PROFILER.is_dir(),
        library_path=tuple(entry for entry in library_path if entry.startswith("/usr/") and Path(entry).is_dir()),
        secret_folders=tuple(path for path in resolved if path.is_dir()),
        secret_files=tuple(path for path in resolved if not path.is_dir()),
        init=made.init if (made := native.programs()) else None,
        resolver=RESOLVER.read_bytes() if RESOLVER.is_file() else b"",
    )


@contextmanager
def opened_sockets(bridges: Mapping[int, Path]) -> Iterator[dict[int, int]]:
    """Port -> descriptor (O_PATH) of the unix socket, by which process 1 can connect where no path of the sandbox leads.

    SandboxError when a socket is missing or a sandbox could not connect to it.
    """
    with ExitStack() as stack:
        opened = {}
        for port, path in sorted(bridges.items()):
            try:
                opened[port] = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError as error:
                raise SandboxError(f"{path}: a bridge should lead to this socket: {error.strerror}") from None
            stack.callback(os.close, opened[port])
            mode = os.fstat(opened[port]).st_mode
            if not stat.S_ISSOCK(mode):
                raise SandboxError(f"{path}: a bridge should lead to this file, but it is not a socket")
            if os.geteuid() == 0 and not mode & stat.S_IWOTH:
                raise SandboxError(
                    f"{path}: the sandbox's user may not connect to it; make it mode 0666, in a folder closed to every other user"
                )
        yield opened
