"""From a `Profile` to a container's mounts and image: a pure function."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import assert_never

from arena.sandboxes.profile import Bind, Cover, Device, Entry, Folder, Gathered, Link, Memory, Profile

EMPTIED = ("/etc/hostname", "/etc/resolv.conf")  # files in which an engine would put names of the host and its name servers
EMPTY_TMPFS = "ro,nosuid,nodev,noexec,size=4k,mode=0555"
INIT = "/run/arena/init"  # process 1 as a compiled program
KERNEL_FOLDERS = ("/sys", "/sys/fs/cgroup")  # covered: a container has them and a bwrap sandbox has not


@dataclass
class Plan:
    """A profile as a container's mounts, and its image: the links and folders."""

    profile: Profile
    tmpfs: dict[str, str]  # path inside -> mount options
    binds: list[Bind] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)  # path inside -> what it links to
    folders: list[str] = field(default_factory=list)
    devices: list[Path] = field(default_factory=list)


def container_plan(profile: Profile, user: int, mounts: tuple[Path, ...] = ()) -> Plan:
    """The container that shows this profile to the user and group of that number. `mounts` are the host's mount points."""
    plan = Plan(profile, tmpfs=dict.fromkeys(KERNEL_FOLDERS, EMPTY_TMPFS))
    for entry in profile.entries:
        _add(plan, entry, user)
    if isinstance(profile.init, bytes):
        plan.binds.append(Bind(INIT, profile.init, 0o555))
    named = {bind.target for bind in plan.binds}
    plan.binds += [Bind(place, b"") for place in EMPTIED if place not in named]
    plan.binds += _below(plan.binds, {*named, *plan.tmpfs}, mounts)
    plan.tmpfs |= _parents(named, plan.tmpfs)
    return plan


def _add(plan: Plan, entry: Entry, user: int) -> None:
    """Add one entry of the profile to the plan."""
    match entry:
        case Bind():
            plan.binds.append(entry)
        case Memory(target, size_bytes, mode):  # an engine's own memory is noexec
            plan.tmpfs[target] = f"rw,exec,nosuid,nodev,size={size_bytes},uid={user},gid={user},mode={mode:04o}"
        case Cover(target):
            plan.tmpfs[target] = EMPTY_TMPFS
        case Link(target, to):
            plan.links[target] = to
        case Folder(target):
            plan.folders.append(target)
        case Gathered(target, binds):
            plan.folders.append(target)
            plan.binds += binds
        case Device(path):
            plan.devices.append(path)
        case _:
            assert_never(entry)


def _parents(targets: set[str], tmpfs: Mapping[str, str]) -> dict[str, str]:
    """Folders between a private one and a file inside it, as the user's own memory: the engine would give them to root."""
    found: dict[str, str] = {}
    for target in targets:
        above = [str(path) for path in PurePosixPath(target).parents]
        nearest = next((path for path in above if path in tmpfs), None)
        if nearest is not None and tmpfs[nearest] != EMPTY_TMPFS:
            found |= dict.fromkeys(above[: above.index(nearest)], re.sub("mode=.*", "mode=0755", tmpfs[nearest]))
    return found


def _below(binds: list[Bind], taken: set[str], mounts: tuple[Path, ...]) -> list[Bind]:
    """Binds of the mounts below bound folders: engines before 25 make only a folder's own mount read-only."""
    found = []
    for bind in binds:
        if bind.writable or isinstance(bind.source, bytes):
            continue
        for point in mounts:
            if point == bind.source or not point.is_relative_to(bind.source):
                continue
            target = PurePosixPath(bind.target, point.relative_to(bind.source))
            # A covered path stays covered.
            if not any(target.is_relative_to(place) for place in taken - {bind.target} if len(place) > len(bind.target)):
                found.append(Bind(str(target), point))
    return found


def mount_points(mountinfo: str) -> tuple[Path, ...]:
    """Mount points from the text of /proc/self/mountinfo, where a space is written as \\040."""
    fields = (line.split(" ")[4] for line in mountinfo.splitlines())
    return tuple(Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), field)) for field in fields)


def image(plan: Plan) -> tuple[str, bytes]:
    """(tag, tar) of the image: the root with its links and folders, and nothing else. The tag names the content."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted({*plan.folders, *plan.links}):
            entry = tarfile.TarInfo(path.lstrip("/"))
            if path in plan.links:
                entry.type, entry.linkname = tarfile.SYMTYPE, plan.links[path]
            else:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
    return hashlib.sha256(packed.getvalue()).hexdigest()[:16], packed.getvalue()
