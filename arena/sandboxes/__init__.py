"""The wall. A backend is a module with two functions, `run` and `missing`; `SandboxSpec` says what it must hold.

Inside every box: an empty root with a read-only system, a Python with torch at /opt/venv, a private /tmp, /home/agent
and /dev/shm, no network, no capability, own pid, ipc, uts, net, cgroup and (with bwrap) user namespaces, and nothing else
of the host. An `agent` box has its workspace writable at /workspace; a `worker` box has only the files it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes. What cannot be enforced on this machine is left out of `RunningSandbox.limits`."""

    tmp_bytes: int = 2048 * MIB
    home_bytes: int = 1024 * MIB
    shm_bytes: int = 1024 * MIB
    file_bytes: int = 2048 * MIB
    """Largest single file (RLIMIT_FSIZE)."""
    open_files: int = 4096
    processes: int = 2048
    """By a control group, and by RLIMIT_NPROC where the box has a user namespace or a uid that it counts for."""
    memory_bytes: int | None = None
    """All memory of the box, its tmpfs included: by a control group, else by a watcher (watch.py). None: no limit."""
    cpus: float | None = None
    """CPU time per time, in processors (a control group's quota). None: no bound."""
    workspace_bytes: int | None = None
    """An agent's workspace: as root a tmpfs of that size, else a watcher. None: no bound."""
    workspace_files: int | None = None


@dataclass(frozen=True)
class SandboxSpec:
    """One sandboxed command and all that it may see."""

    kind: Literal["agent", "worker"]
    command: tuple[str, ...]
    """Argument list as seen inside; the first word is looked up on the box's PATH."""
    workspace: Path | None = None
    """Host folder bound read-write at /workspace; without it /workspace is empty and read-only."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Read-only files inside: absolute path -> content."""
    home: Mapping[str, bytes] = field(default_factory=dict)
    """Files that HOME holds at the start, the command's own from then on: path below HOME -> content."""
    binds: Mapping[str, Path] = field(default_factory=dict)
    """Host folders shown read-only: absolute path inside -> folder."""
    path: tuple[str, ...] = ()
    """Folders that come first on PATH."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the box's own short environment."""
    pass_fds: tuple[int, ...] = ()
    """File descriptors that stay open inside under the same numbers."""
    network: Literal["none", "open"] = "none"
    """`open` shares the host's network namespace: such a run is not sealed and must be marked so."""
    bridges: Mapping[int, Path] = field(default_factory=dict)
    """TCP port on the box's own 127.0.0.1 -> the host's unix socket that it leads to."""
    stdin: bytes = b""
    cpus: frozenset[int] | None = None
    """Processors that the box may use. When given, the filter also refuses `sched_setaffinity`."""
    gpu: int | None = None
    """Index of the one GPU whose device nodes are bound; None binds none."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class LostFiles:
    """What a workspace held and could not be kept in the folder that it came from."""

    count: int = 0
    first: tuple[str, ...] = ()
    """Some of it, by path, each with the reason: a box may make any number, of any length."""


class RunningSandbox(Protocol):
    """A started box. Leaving its `with` block kills whatever is left and proves that nothing is."""

    stdout: BinaryIO
    """Read end of the command's standard output (a pipe)."""
    stderr: BinaryIO
    limits: Mapping[str, str]
    """Which limits are in force, and by what mechanism."""
    workspace: Path | None
    """Where the workspace can be read from outside while the box runs; None without one."""
    exceeded: tuple[str, ...]
    """Which limits the box has met, in words. Known when its block has been left, as is `lost`."""
    lost: LostFiles

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The command's exit status (128 + n for signal n), or None when `timeout_s` passed first."""

    def terminate(self) -> None:
        """Ask the command to end: SIGTERM to its process group. It may take its time."""

    def kill(self) -> None:
        """End everything inside at once and return when the kernel has confirmed that the box is empty."""

    def freeze(self) -> int:
        """Stop every process inside except init; return the CPU time they have used so far, in ns."""

    def thaw(self) -> None:
        """Let them go on."""

    def cpu_ns(self) -> int:
        """CPU time used so far by every process inside except init. Unchanged while frozen, or something in it ran."""


class Sandbox(Protocol):
    """What a backend module offers."""

    def run(self, box: SandboxSpec) -> AbstractContextManager[RunningSandbox]:
        """Start the box."""

    def missing(self) -> str | None:
        """Why this backend cannot be used here and what to do about it, in one line; None when it can."""
