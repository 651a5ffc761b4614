"""Control groups: one per sandbox, below one per arena process, in this machine's hierarchies of version 1 or 2.

A process must enter its group before bwrap forks: entered later, the group limited nothing (16 processes allowed, 200 ran). So
the launcher enters it. When arena is killed, keeper.py removes the groups; when that is killed too, the next arena does.
"""

from __future__ import annotations

import functools
import os
import secrets
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self

from arena.errors import SandboxError
from arena.sandboxes import MIB, Limits
from arena.sandboxes.programs import keeper
from arena.system import process

CONTROLLERS = ("memory", "pids", "cpu")
LIMIT_NAMES = {"memory": "memory", "pids": "processes", "cpu": "cpu"}  # names in `RunningSandbox.limits`
NAME = "arena-"
NAME_PATTERN = NAME + "[0-9a-f]" * 8
PERIOD_US = 100_000
TCP_BYTES = 64 * MIB
"""Of data on its way in the TCP and UDP sockets of a sandbox: the kernel counts both here."""
REMOVAL_S = 2.0  # a group stays busy for a moment after its last process has been reaped


class Cgroup(NamedTuple):
    """A group in one hierarchy."""

    version: Literal[1, 2]
    folder: Path


class Setting(NamedTuple):
    """One file of a group."""

    file: str
    value: str
    description: str = ""  # the limit in words
    needed: bool = True  # False: not every kernel has it, and without it the limit still holds


NO_QUOTA = {1: ("cpu.cfs_quota_us", "-1"), 2: ("cpu.max", "max")}


def settings(version: int, limits: Limits, fair: bool = False) -> dict[str, list[Setting]]:
    """What to write into a sandbox's group, by controller. `fair`: the group gets one share of CPU time, not one per process."""
    wanted = {"pids": [Setting("pids.max", str(limits.processes), description=str(limits.processes))]}
    if (memory := limits.memory_bytes) is not None:
        wanted["memory"] = {
            1: [
                Setting("memory.limit_in_bytes", str(memory), description=f"{memory // MIB} MiB"),
                Setting("memory.memsw.limit_in_bytes", str(memory), needed=False),
                # Version 2 counts it as memory. The kernel has one pool for the machine: 60 connections took a tenth of it.
                Setting("memory.kmem.tcp.limit_in_bytes", str(min(memory, TCP_BYTES)), needed=False),
            ],
            2: [
                Setting("memory.max", str(memory), description=f"{memory // MIB} MiB"),
                Setting("memory.swap.max", "0", needed=False),
                Setting("memory.oom.group", "1", needed=False),
            ],
        }[version]
    # A group of its own is enough for a share as large as any other's, however many processes are in it.
    share = {1: Setting("cpu.shares", "1024", description="1024"), 2: Setting("cpu.weight", "100", description="100")}[version]
    wanted["cpu"] = [share] if fair else []
    if limits.cpus is not None:
        quota, description = str(round(limits.cpus * PERIOD_US)), f"{limits.cpus:g} processors"
        wanted["cpu"] += {
            1: [Setting("cpu.cfs_period_us", str(PERIOD_US)), Setting("cpu.cfs_quota_us", quota, description)],
            2: [Setting("cpu.max", f"{quota} {PERIOD_US}", description)],
        }[version]
    return wanted


def events(text: str) -> dict[str, int]:
    """A file of `name number` lines."""
    return {name: int(value) for name, _, value in (line.partition(" ") for line in text.splitlines())}


def parse_cgroups(groups: str, mounts: str) -> dict[str, Cgroup]:
    """Groups of a process by controller, from the texts of its cgroup file and of mountinfo; '' is version 2."""
    own: dict[str, str] = {}
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        own |= dict.fromkeys(names.split(","), path)
    found: dict[str, Cgroup] = {}
    for line in mounts.splitlines():
        left, right = line.split(" - ", 1)
        root, point = left.split(" ")[3:5]
        kind, _, options = right.split(" ", 2)
        offered = {"cgroup2": {""}, "cgroup": set(options.split(",")) & set(CONTROLLERS)}.get(kind, set())
        for name in offered & own.keys():
            # In a container the mount may show only a part of the hierarchy, and not ours.
            if Path(own[name]).is_relative_to(root):
                folder = Path(point, Path(own[name]).relative_to(root))
                found.setdefault(name, Cgroup(2 if kind == "cgroup2" else 1, folder))
    return found


def own_cgroups() -> dict[str, Cgroup]:
    """Groups of this process, now."""
    return parse_cgroups(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())


def delegated_parent(own: Path) -> Path | None:
    """The nearest group of version 2, from ours upwards, below which groups with memory and pids limits can be made.

    Our own is seldom the one: a group that holds processes delegates no controllers. A systemd user may use `app.slice`, root
    every slice. The limits of all groups above it stay in force.
    """
    for folder in (own, *own.parents):
        try:
            offered = set((folder / "cgroup.controllers").read_text().split()) & set(CONTROLLERS)
            if not {"memory", "pids"} <= offered:
                continue
            if missing := offered - set(delegated(folder)):
                delegate(folder, missing)
        except OSError:  # above the mount; not ours to write; it holds processes
            continue
        if os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK):
            return folder
    return None


def delegated(folder: Path) -> list[str]:
    """Controllers that a group delegates to its children."""
    return sorted(set((folder / "cgroup.subtree_control").read_text().split()) & set(CONTROLLERS))


def delegate(folder: Path, controllers: Iterable[str]) -> None:
    """Delegate these controllers to a group's children. OSError."""
    (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(controllers)))


@functools.cache
def arena_cgroups() -> Mapping[str, Cgroup]:
    """This arena's groups by controller, made once and locked as long as it lives; empty where this user may make none."""
    own = own_cgroups()
    parents = {name: own[name] for name in CONTROLLERS if name in own}
    if (two := own.get("")) and (folder := delegated_parent(two.folder)):
        parents |= {name: Cgroup(2, folder) for name in delegated(folder) if name not in parents}
    name = NAME + secrets.token_hex(4)
    made = set()
    for version, parent in set(parents.values()):
        try:
            _sweep(parent)
            _make(parent / name)
            if version == 2:
                delegate(parent / name, delegated(parent))
        except OSError:  # read-only, as in most containers, or not ours
            continue
        made.add(parent)
    if made:
        _start_keeper([parent / name for parent in made])
    return {each: Cgroup(cgroup.version, cgroup.folder / name) for each, cgroup in parents.items() if cgroup.folder in made}


class SandboxCgroup:
    """The groups of one sandbox, from before its start to after its end."""

    def __init__(self, limits: Limits, parents: Mapping[str, Cgroup], fair: bool = False) -> None:
        self.in_force: dict[str, str] = {}  # limits that the group enforces, in the words of `RunningSandbox.limits`
        self._limits = limits
        self._parents = parents
        self._fair = fair
        self._cgroups: dict[str, Cgroup] = {}

    @property
    def procs_files(self) -> list[str]:
        """The `cgroup.procs` files by which the launcher enters the groups."""
        return sorted({str(cgroup.folder / "cgroup.procs") for cgroup in self._cgroups.values()})

    def __enter__(self) -> Self:
        name = secrets.token_hex(4)
        with ExitStack() as undo:
            undo.callback(self._remove)
            for controller, (version, parent) in self._parents.items():
                if wanted := settings(version, self._limits, self._fair).get(controller):
                    self._cgroups[controller] = Cgroup(version, parent / name)
                    self._create(controller, wanted)
            undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()

    def oom_kills(self) -> int:
        """Processes of the sandbox that the kernel ended because its memory was used up."""
        return events(self._read("memory", "memory.oom_control", "memory.events")).get("oom_kill", 0)

    def exceeded(self) -> list[str]:
        """Limits that the sandbox has reached, in words."""
        reached = []
        if killed := self.oom_kills():
            size = (self._limits.memory_bytes or 0) // MIB
            reached.append(f"its memory of {size} MiB was used up, and the kernel ended {killed} of its processes")
        # RLIMIT_NPROC refuses before the group does (see the sandbox init), so the group's count of refusals is mostly 0. Forks
        # that fail at the same time leave the peak a few short.
        refused = events(self._read("pids", "pids.events")).get("max", 0)
        most = int(self._read("pids", "pids.peak") or 0)
        if refused or most >= 0.98 * self._limits.processes:
            reached.append(f"it was at its limit of {self._limits.processes} processes")
        return reached

    def prepare_kill(self, pid: int) -> None:
        """Lift the CPU quota before a sandbox is killed, and move process 1, which ends the others, into our own group.

        Among 2000 processes of a fork bomb process 1 waited 1 to 3 s for its turn to die.
        """
        if "cpu" not in self._cgroups:
            return
        version, folder = self._cgroups["cpu"]
        ours = own_cgroups()["cpu" if version == 1 else ""].folder
        file, value = NO_QUOTA[version]
        for path, text in ((ours / "cgroup.procs", str(pid)), (folder / file, value)):
            with suppress(OSError):  # ended meanwhile; or a user's own group belongs to root
                path.write_text(text)

    def _remove(self) -> None:
        """Remove the groups. One that still holds a process stays: the sandbox's end reports it, the keeper goes on trying."""
        left = {cgroup.folder for cgroup in self._cgroups.values()}
        end_s = time.monotonic() + REMOVAL_S
        while left and time.monotonic() < end_s:
            left = {folder for folder in left if not keeper.remove(str(folder))}
            if left:
                time.sleep(keeper.RETRY_S)

    def _read(self, controller: str, file: str, in_version_2: str = "") -> str:
        """Text of one of the group's files, empty where there is none; in version 2 some have another name."""
        if controller not in self._cgroups:
            return ""
        version, folder = self._cgroups[controller]
        try:
            return (folder / (in_version_2 if version == 2 and in_version_2 else file)).read_text()
        except OSError:  # older kernels do not have all of them; ENODEV while an engine takes its group away
            return ""

    def _create(self, controller: str, wanted: list[Setting]) -> None:
        """Make the group (one for all controllers of version 2) and write the limits."""
        version, folder = self._cgroups[controller]
        try:
            folder.mkdir(exist_ok=True)
            for setting in wanted:
                if setting.needed or (folder / setting.file).exists():
                    (folder / setting.file).write_text(setting.value)
                if setting.description:
                    self.in_force[LIMIT_NAMES[controller]] = f"cgroup v{version} {setting.file} {setting.description}"
        except OSError as error:
            tried = ", ".join(f"{setting.file} {setting.value}" for setting in wanted)
            raise SandboxError(f"cannot make the control group {folder} ({tried}): {error.strerror}") from None


def engine_cgroup(limits: Limits, pid: int, engine: str) -> SandboxCgroup:
    """The groups that an engine made for a process, with these limits. Arena only reads them."""
    group = SandboxCgroup(limits, {})
    groups = parse_cgroups(Path(f"/proc/{pid}/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    group._cgroups = {name: cgroup for name in CONTROLLERS if (cgroup := groups.get(name) or groups.get(""))}
    for name, cgroup in group._cgroups.items():
        for setting in settings(cgroup.version, limits).get(name, []):
            if setting.description:
                group.in_force[LIMIT_NAMES[name]] = f"cgroup v{cgroup.version} {setting.file} {setting.description} ({engine})"
    return group


def _make(folder: Path) -> None:
    """Make and lock a group. Its descriptor stays open until this process ends; then the kernel drops the lock."""
    while True:
        folder.mkdir(exist_ok=True)
        # Between the two steps another arena may have found it unlocked and removed it.
        if keeper.lock(str(folder), wait=True) is not None and folder.exists():
            return


def _sweep(parent: Path) -> None:
    """Remove the groups of arenas that were killed together with their keepers."""
    for folder in parent.glob(NAME_PATTERN):
        if (held := keeper.lock(str(folder), wait=False)) is not None:
            keeper.remove(str(folder))
            os.close(held)


def _start_keeper(folders: list[Path]) -> None:
    """Start the keeper. Nothing waits for it: it ends after us, unless it is killed."""
    environment = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    started = process.start([sys.executable, "-I", "-S", keeper.__file__, *map(str, folders)], env=environment)
    for stream in (started.stdout, started.stderr):
        assert stream is not None
        stream.close()
    started.returncode = 0  # else Popen warns of a running process when it is deleted
