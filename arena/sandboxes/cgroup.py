"""Control groups: one for each box, below one of this arena process, in the hierarchies of version 1 or 2 that this machine has.

A group must be entered before bwrap forks: entered later, it limited nothing (16 processes allowed, 200 ran). So launch.py
enters it. When arena is killed, keeper.py removes the groups; when that is killed too, the next arena does.
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
SAID = {"memory": "memory", "pids": "processes", "cpu": "cpu"}
"""Names in `RunningSandbox.limits`."""
NAME = "arena-"
OURS = NAME + "[0-9a-f]" * 8
PERIOD_US = 100_000
NEARLY = 0.98
REMOVAL_S = 2.0
"""A group stays busy for a moment after its last process has been reaped."""
KEEPER = Path(__file__).with_name("programs") / "keeper.py"


class Place(NamedTuple):
    """A group in one hierarchy."""

    version: Literal[1, 2]
    folder: Path


class Setting(NamedTuple):
    """One file of a group."""

    file: str
    value: str
    said: str = ""
    """The limit for people."""
    needed: bool = True
    """False: not every kernel has it, and without it the limit still holds."""


NO_QUOTA = {1: ("cpu.cfs_quota_us", "-1"), 2: ("cpu.max", "max")}


def settings(version: int, limits: Limits, fair: bool = False) -> dict[str, list[Setting]]:
    """What to write into a box's group, by controller; `fair` also gives it the CPU time of one, not of each of its processes."""
    wanted = {"pids": [Setting("pids.max", str(limits.processes), said=str(limits.processes))]}
    if (memory := limits.memory_bytes) is not None:
        wanted["memory"] = {
            1: [
                Setting("memory.limit_in_bytes", str(memory), said=f"{memory // MIB} MiB"),
                Setting("memory.memsw.limit_in_bytes", str(memory), needed=False),
            ],
            2: [
                Setting("memory.max", str(memory), said=f"{memory // MIB} MiB"),
                Setting("memory.swap.max", "0", needed=False),
                Setting("memory.oom.group", "1", needed=False),
            ],
        }[version]
    # A group of its own is enough for a share as large as any other's, however many processes are in it.
    share = {1: Setting("cpu.shares", "1024", said="1024"), 2: Setting("cpu.weight", "100", said="100")}[version]
    wanted["cpu"] = [share] if fair else []
    if limits.cpus is not None:
        quota, said = str(round(limits.cpus * PERIOD_US)), f"{limits.cpus:g} processors"
        wanted["cpu"] += {
            1: [Setting("cpu.cfs_period_us", str(PERIOD_US)), Setting("cpu.cfs_quota_us", quota, said)],
            2: [Setting("cpu.max", f"{quota} {PERIOD_US}", said)],
        }[version]
    return wanted


def events(text: str) -> dict[str, int]:
    """A file of `name number` lines."""
    return {name: int(value) for name, _, value in (line.partition(" ") for line in text.splitlines())}


def places(groups: str, mounts: str) -> dict[str, Place]:
    """Where this process stands, by controller, from the texts of /proc/self/cgroup and mountinfo; '' is version 2."""
    own: dict[str, str] = {}
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        own |= dict.fromkeys(names.split(","), path)
    found: dict[str, Place] = {}
    for line in mounts.splitlines():
        left, right = line.split(" - ", 1)
        root, point = left.split(" ")[3:5]
        kind, _, options = right.split(" ", 2)
        offered = {"cgroup2": {""}, "cgroup": set(options.split(",")) & set(CONTROLLERS)}.get(kind, set())
        for name in offered & own.keys():
            # In a container the mount may show only a part of the hierarchy, and not ours.
            if Path(own[name]).is_relative_to(root):
                folder = Path(point, Path(own[name]).relative_to(root))
                found.setdefault(name, Place(2 if kind == "cgroup2" else 1, folder))
    return found


def here() -> dict[str, Place]:
    """`places` of this process, now."""
    return places(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())


def subtree(own: Path) -> Path | None:
    """The nearest group of version 2, from ours upwards, below which groups with memory and pids limits can be made.

    Our own seldom can: a group that holds processes hands no controllers on. A systemd user may use `app.slice`, root every
    slice. Whatever is above it still holds.
    """
    for folder in (own, *own.parents):
        try:
            offered = set((folder / "cgroup.controllers").read_text().split()) & set(CONTROLLERS)
            if not {"memory", "pids"} <= offered:
                continue
            if missing := offered - set(handed_on(folder)):
                hand_on(folder, missing)
        except OSError:  # above the mount; not ours to write; it holds processes
            continue
        if os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK):
            return folder
    return None


def handed_on(folder: Path) -> list[str]:
    """Controllers that a group's children have."""
    return sorted(set((folder / "cgroup.subtree_control").read_text().split()) & set(CONTROLLERS))


def hand_on(folder: Path, controllers: Iterable[str]) -> None:
    """Let a group's children have these. OSError."""
    (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(controllers)))


@functools.cache
def home() -> Mapping[str, Place]:
    """The groups of this process by controller, made once and locked as long as it lives; empty where this user may make none."""
    own = here()
    parents = {name: own[name] for name in CONTROLLERS if name in own}
    if (two := own.get("")) and (folder := subtree(two.folder)):
        parents |= {name: Place(2, folder) for name in handed_on(folder) if name not in parents}
    name = NAME + secrets.token_hex(4)
    made = set()
    for version, parent in set(parents.values()):
        try:
            _sweep(parent)
            _make(parent / name)
            if version == 2:
                hand_on(parent / name, handed_on(parent))
        except OSError:  # read-only, as in most containers, or not ours
            continue
        made.add(parent)
    if made:
        _start_keeper([parent / name for parent in made])
    return {each: Place(place.version, place.folder / name) for each, place in parents.items() if place.folder in made}


class Group:
    """The groups of one box, from before its start to after its end."""

    def __init__(self, limits: Limits, parents: Mapping[str, Place], fair: bool = False) -> None:
        self.in_force: dict[str, str] = {}
        """Which limits hold by a group, as `RunningSandbox.limits` says them."""
        self._limits = limits
        self._parents = parents
        self._fair = fair
        self._places: dict[str, Place] = {}

    @property
    def entrances(self) -> list[str]:
        """Files that launch.py writes itself into."""
        return sorted({str(place.folder / "cgroup.procs") for place in self._places.values()})

    def __enter__(self) -> Self:
        name = secrets.token_hex(4)
        with ExitStack() as undo:
            undo.callback(self._remove)
            for controller, (version, parent) in self._parents.items():
                if wanted := settings(version, self._limits, self._fair).get(controller):
                    self._places[controller] = Place(version, parent / name)
                    self._fill(controller, wanted)
            undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()

    def killed(self) -> int:
        """Processes of the box that the kernel ended because its memory was used up."""
        return events(self._told("memory", "memory.oom_control", "memory.events")).get("oom_kill", 0)

    def hits(self) -> list[str]:
        """Which limits the box has met, in words."""
        said = []
        if killed := self.killed():
            size = (self._limits.memory_bytes or 0) // MIB
            said.append(f"its memory of {size} MiB was used up, and the kernel ended {killed} of its processes")
        # RLIMIT_NPROC refuses before the group does (see init.py), so its own count of refusals is mostly 0. Forks that fail
        # at the same time leave the peak a few short.
        refused = events(self._told("pids", "pids.events")).get("max", 0)
        most = int(self._told("pids", "pids.peak") or 0)
        if refused or most >= NEARLY * self._limits.processes:
            said.append(f"it was at its limit of {self._limits.processes} processes")
        return said

    def hurry(self, pid: int) -> None:
        """Before a box is killed: let it end as fast as the machine can, and process 1, which ends the others, as one of ours.

        Among 2000 processes of a fork bomb it waited 1 to 3 s for its turn to die.
        """
        if "cpu" not in self._places:
            return
        version, folder = self._places["cpu"]
        ours = here()["cpu" if version == 1 else ""].folder
        file, value = NO_QUOTA[version]
        for path, text in ((ours / "cgroup.procs", str(pid)), (folder / file, value)):
            with suppress(OSError):  # ended meanwhile; a user whose own group belongs to root
                path.write_text(text)

    def _remove(self) -> None:
        """What cannot be removed still holds a process, of which the box's own end has told; the keeper goes on trying."""
        left = {place.folder for place in self._places.values()}
        end_s = time.monotonic() + REMOVAL_S
        while left and time.monotonic() < end_s:
            left = {folder for folder in left if not keeper.removed(str(folder))}
            if left:
                time.sleep(keeper.LOOK_S)

    def _told(self, controller: str, file: str, in_version_2: str = "") -> str:
        """A file of the kernel's, empty where there is none; in version 2 some have another name."""
        if controller not in self._places:
            return ""
        version, folder = self._places[controller]
        try:
            return (folder / (in_version_2 if version == 2 and in_version_2 else file)).read_text()
        except OSError:  # older kernels do not have all of them; ENODEV while an engine takes its group away
            return ""

    def _fill(self, controller: str, wanted: list[Setting]) -> None:
        """Make the group, one for all controllers of version 2, and write the limits."""
        version, folder = self._places[controller]
        try:
            folder.mkdir(exist_ok=True)
            for setting in wanted:
                if setting.needed or (folder / setting.file).exists():
                    (folder / setting.file).write_text(setting.value)
                if setting.said:
                    self.in_force[SAID[controller]] = f"cgroup v{version} {setting.file} {setting.said}"
        except OSError as error:
            told = ", ".join(f"{setting.file} {setting.value}" for setting in wanted)
            raise SandboxError(f"cannot make the control group {folder} ({told}): {error.strerror}") from None


def foreign(limits: Limits, pid: int, engine: str) -> Group:
    """The groups that an engine made for a process, with these limits: only to be counted in, never entered or removed."""
    group = Group(limits, {})
    there = places(Path(f"/proc/{pid}/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    group._places = {name: place for name in CONTROLLERS if (place := there.get(name) or there.get(""))}
    for name, place in group._places.items():
        for setting in settings(place.version, limits).get(name, []):
            if setting.said:
                group.in_force[SAID[name]] = f"cgroup v{place.version} {setting.file} {setting.said} ({engine})"
    return group


def _make(folder: Path) -> None:
    """Make and lock a group. Its descriptor stays open: the kernel closes it with this process, and the lock falls."""
    while True:
        folder.mkdir(exist_ok=True)
        # Between the two steps another arena may have found it unlocked and swept it away.
        if keeper.lock(str(folder), wait=True) is not None and folder.exists():
            return


def _sweep(parent: Path) -> None:
    """Remove what an arena left whose keeper was killed as well."""
    for folder in parent.glob(OURS):
        if (held := keeper.lock(str(folder), wait=False)) is not None:
            keeper.removed(str(folder))
            os.close(held)


def _start_keeper(folders: list[Path]) -> None:
    """It is never waited for: it ends after us, unless somebody kills it."""
    environment = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    started = process.start([sys.executable, "-I", "-S", str(KEEPER), *map(str, folders)], env=environment)
    for stream in (started.stdout, started.stderr):
        assert stream is not None
        stream.close()
    started.returncode = 0  # else it warns of a process that still runs when it is thrown away
