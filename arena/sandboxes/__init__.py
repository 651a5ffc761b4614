"""Sandboxes for untrusted code. A backend is a module with two functions, `run` and `missing`; `SandboxSpec` is its input.

Every sandbox has an empty root with a read-only system, a Python with torch at /opt/venv, and a private /tmp, /home/agent and
/dev/shm. It has no network, no capability, and its own pid, ipc, uts, net, cgroup and (with bwrap) user namespaces. Nothing
else of the host is in it. An `agent` sandbox has its workspace writable at /workspace; a `worker` sandbox has only the files
that it is given.
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
    """Sizes in bytes. A limit that cannot be enforced on this machine is left out of `RunningSandbox.limits`."""

    tmp_bytes: int = 2048 * MIB
    home_bytes: int = 1024 * MIB
    shm_bytes: int = 1024 * MIB
    file_bytes: int = 2048 * MIB  # largest single file (RLIMIT_FSIZE)
    open_files: int = 4096
    processes: int = 2048
    """By a control group, and by RLIMIT_NPROC where the sandbox has a user namespace or a uid that it counts for."""
    memory_bytes: int | None = None
    """All memory of the sandbox, its tmpfs included: by a control group, else by the watchdog (watchdog.py). None: no limit."""
    cpus: float | None = None  # CPU time per time, in processors (a control group's quota). None: no limit.
    workspace_bytes: int | None = None
    """An agent's workspace: as root a tmpfs of that size, else by the watchdog. None: no limit."""
    workspace_files: int | None = None


@dataclass(frozen=True)
class SandboxSpec:
    """One sandboxed command and all that it may see."""

    kind: Literal["agent", "worker"]
    command: tuple[str, ...]  # argument list as seen inside; the first word is looked up on the sandbox's PATH
    workspace: Path | None = None  # host folder bound read-write at /workspace; without it /workspace is empty and read-only
    files: Mapping[str, bytes] = field(default_factory=dict)  # read-only files inside: absolute path -> content
    programs: Mapping[str, bytes] = field(default_factory=dict)  # the same, and executable
    home: Mapping[str, bytes] = field(default_factory=dict)
    """Files that HOME holds at the start and that the command may change: path below HOME -> content."""
    binds: Mapping[str, Path] = field(default_factory=dict)  # host folders shown read-only: absolute path inside -> folder
    replaced: Mapping[Path, bytes] = field(default_factory=dict)
    """Files of the host that the sandbox shows with other content, wherever it shows them: path -> content."""
    path: tuple[str, ...] = ()  # folders that come first on PATH
    packages: tuple[str, ...] = ()
    """Distributions of arena's Python that the sandbox shows beside those of every sandbox, with their requirements."""
    env: Mapping[str, str] = field(default_factory=dict)  # added to the sandbox's own short environment
    pass_fds: tuple[int, ...] = ()  # file descriptors that stay open inside under the same numbers
    network: Literal["none", "open"] = "none"
    """`open` shares the host's network namespace: such a run is not sealed and must be marked so."""
    bridges: Mapping[int, Path] = field(default_factory=dict)
    """TCP port on the sandbox's own 127.0.0.1 -> the host's unix socket that it leads to."""
    stdin: bytes = b""
    cpus: frozenset[int] | None = None
    """Processors that the sandbox may use. When given, the filter also refuses `sched_setaffinity`."""
    gpu: int | None = None  # index of the one GPU whose device nodes are bound; None binds none
    limits: Limits = field(default_factory=Limits)
    shared: bool = False
    """Whether `run_beside` may start further sandboxes with the same workspace."""


@dataclass(frozen=True)
class LostFiles:
    """Files of a workspace that could not be kept in the folder that it came from."""

    count: int = 0
    first: tuple[str, ...] = ()  # some of them, by path, each with the reason: a sandbox may make any number, of any length


class RunningSandbox(Protocol):
    """A started sandbox. Leaving its `with` block kills what is left and proves that no process remains."""

    stdout: BinaryIO  # read end of the command's standard output (a pipe)
    stderr: BinaryIO
    limits: Mapping[str, str]  # which limits are in force, and by what mechanism
    proof_s: float  # how long `kill` waits
    workspace: Path | None  # where the host can read the workspace while the sandbox runs; None without one
    exceeded: tuple[str, ...]  # which limits the sandbox has reached, in words. Known when its block has been left, as is `lost`.
    lost: LostFiles

    @property
    def hangup_fd(self) -> int:
        """A descriptor that reports POLLHUP as soon as the command has ended, though what it started may take long to die."""

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The command's exit status (128 + n for signal n), or None when `timeout_s` passed first."""

    def terminate(self) -> None:
        """Send SIGTERM to the command's process group. The command may take its time to end."""

    def begin_kill(self) -> None:
        """Send SIGKILL to everything inside, from any thread, and return at once."""

    def kill(self) -> None:
        """End everything inside and return when the kernel has confirmed that the sandbox is empty.

        SandboxError when it is not within `proof_s`. Arena then reaps it in the background and starts no sandbox before its end.
        """

    def freeze(self) -> int:
        """Stop every process inside except init; return the CPU time they have used so far, in ns."""

    def resume(self) -> None:
        """Continue the stopped processes."""

    def cpu_ns(self) -> int:
        """CPU time used so far by every process inside except init. While frozen it changes only if one of them ran."""


class Sandbox(Protocol):
    """The interface of a backend module."""

    def run(self, spec: SandboxSpec) -> AbstractContextManager[RunningSandbox]:
        """Start the sandbox."""

    def missing(self) -> str | None:
        """Why this backend cannot be used here and what to do about it, in one line; None when it can."""
