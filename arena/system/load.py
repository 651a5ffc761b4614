"""How much of this machine other processes use, and which: what makes a measured time long."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

BUSY_SHARE = 0.25
"""Of the processors that arena may use: a machine of which others use more is busy."""
WATCHED_S = 0.4
"""A clock tick is 10 ms, so this sees a share of one processor to about 3 %."""
NAMED, LEAST = 3, 0.05
"""So many processes are named at most, each with at least this much of a processor."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class User(NamedTuple):
    """A process that uses processor time."""

    name: str
    pid: int
    processors: float


class Load(NamedTuple):
    """What other processes use."""

    used: float
    """Processors; a part may belong to processes that cannot be seen from here, as outside a container."""
    processors: int
    """That arena may use."""
    by: tuple[User, ...] = ()
    """The processes seen, the largest first."""

    @property
    def busy(self) -> bool:
        """Whether a time measured now would mean little."""
        return self.used > BUSY_SHARE * self.processors

    def share(self) -> str:
        """`other processes use 1.9 of 2 processors`: for a record that others read, without their names."""
        return f"other processes use {self.used:.1f} of {self.processors} processors"

    def words(self) -> str:
        """The same with the processes, for the machine's own user: `...: python3 (pid 12) 1.0, cc1plus (pid 40) 0.9`."""
        named = [user for user in self.by if user.processors >= LEAST][:NAMED]
        parts = [f"{user.name} (pid {user.pid}) {user.processors:.1f}" for user in named]
        unseen = self.used - sum(user.processors for user in self.by)
        if unseen > BUSY_SHARE:
            parts.append(f"{unseen:.1f} by processes that cannot be seen from here")
        return self.share() + (f": {', '.join(parts)}" if parts else "")


class _Process(NamedTuple):
    name: str
    parent: int
    ticks: int


class _Sample(NamedTuple):
    at_s: float
    ticks: int
    """Of all the processors that arena may use."""
    processes: dict[int, _Process]


def look(watched_s: float = WATCHED_S) -> Load:
    """Watch this machine for a moment. Arena and the processes that it started are left out."""
    before = _sample()
    time.sleep(watched_s)
    return between(before, _sample(), os.getpid(), len(os.sched_getaffinity(0)))


def between(before: _Sample, after: _Sample, own: int, processors: int) -> Load:
    """The load between two samples, without the process `own` and its descendants."""
    ticks = (after.at_s - before.at_s) * TICKS_PER_S
    family, used, users = _family(after.processes, own), 0.0, []
    for pid, process in after.processes.items():
        earlier = before.processes.get(pid)
        share = (process.ticks - (earlier.ticks if earlier else 0)) / ticks
        if pid in family:
            used -= share
        elif share > 0:
            users.append(User(process.name, pid, share))
    used = max(used + (after.ticks - before.ticks) / ticks, 0.0)
    users.sort(key=lambda user: -user.processors)
    # A kernel that hides the machine's own counters still shows those of its processes.
    return Load(max(used, min(sum(user.processors for user in users), processors)), processors, tuple(users))


def _family(processes: dict[int, _Process], own: int) -> set[int]:
    """`own` and its descendants."""
    family, grown = {own}, True
    while grown:
        more = {pid for pid, process in processes.items() if process.parent in family} - family
        family, grown = family | more, bool(more)
    return family


def _sample() -> _Sample:
    processes = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            head, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        fields = rest.split()
        name = "".join(character for character in head.partition("(")[2] if character.isprintable())
        processes[int(folder.name)] = _Process(name, int(fields[1]), int(fields[11]) + int(fields[12]))
    return _Sample(time.monotonic(), _ticks(), processes)


def _ticks() -> int:
    """Busy ticks of the processors that arena may use, with those that a virtual machine's host took."""
    wanted, total = {f"cpu{number}" for number in os.sched_getaffinity(0)}, 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *numbers = line.split()
        if name in wanted:
            user, nice, system, _, _, interrupts, soft, *more = map(int, numbers[:8])
            total += user + nice + system + interrupts + soft + sum(more)
    return total
