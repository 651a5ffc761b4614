"""From bwrap's argument list to a container's contents: a pure function, so that both backends make the same sandbox.

profile.py stays the only description of the sandbox. This module reads its list, word by word. A word without a translation is
an error, so nothing that is added there can be missing from a container unnoticed.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from arena.errors import SandboxError
from arena.sandboxes.profile import OWN_NETWORK, Argument

IMPLIED = {
    # bwrap's word -> why a container has it in any case.
    "--unshare-ipc": "IpcMode private",
    "--unshare-pid": "a container always has one",
    "--unshare-uts": "a container always has one",
    "--unshare-cgroup-try": "CgroupnsMode private",
    "--unshare-user": "there is none: engines make one for all containers or for none. The user is a throw-away one in any case",
    "--disable-userns": "both filters refuse new user namespaces",
    "--new-session": "runc starts a session, and no terminal is given",
    "--as-pid-1": "without Init, the command is process 1",
    "--clearenv": "process 1 is started with the whole environment",
}
"""Words without a value that an engine fulfils anyway."""
IMPLIED_WITH_VALUE = {"--cap-drop", "--gid", "--proc", "--dev", "--chdir"}
"""The same with one value: CapDrop, User, a /proc and a /dev of its own, and enter.py's chdir."""
EMPTIED = ("/etc/hostname", "/etc/resolv.conf")  # files in which an engine would put names of the host and its name servers
EMPTY_TMPFS = "ro,nosuid,nodev,noexec,size=4k,mode=0555"
KERNEL_FOLDERS = ("/sys", "/sys/fs/cgroup")  # covered: a container has them and a bwrap sandbox has not


@dataclass(frozen=True)
class Bind:
    """A host path, or the bytes of a file of that mode, at a path inside."""

    source: Path | bytes
    target: str
    mode: int = 0o444
    read_only: bool = True


@dataclass
class Plan:
    """A container without its limits and its user."""

    own_network: bool
    tmpfs: dict[str, str]  # path inside -> mount options
    binds: list[Bind] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)  # path inside -> what it links to; these and `folders` are the image
    folders: list[str] = field(default_factory=list)
    devices: list[Path] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    identity: dict[str, str] = field(default_factory=dict)  # bwrap's --uid and --hostname
    filter: bytes = b""  # the system call filter


def container_plan(arguments: tuple[Argument, ...], uid: int, gid: int, mounts: tuple[Path, ...] = ()) -> Plan:
    """The container that shows what bwrap would show with these arguments, to that user. SandboxError for an unknown word.

    `mounts` are the host's mount points.
    """
    plan = Plan(own_network=OWN_NETWORK in arguments, tmpfs=dict.fromkeys(KERNEL_FOLDERS, EMPTY_TMPFS))
    queue = [word for word in arguments if word != OWN_NETWORK]
    mode, size = 0o755, ""
    while queue:
        option, values = _next(queue)
        if option == "--perms":
            mode = int(str(values[0]), 8)
        elif option == "--size":
            size = f"size={values[0]!s},"
        else:
            _add(plan, option, values, mode, f"{size}uid={uid},gid={gid},mode={mode:04o}")
            mode, size = 0o755, ""
    named = {bind.target for bind in plan.binds}
    plan.binds = [_with_user_ids(bind, plan.identity["--uid"], uid, gid) for bind in plan.binds]
    plan.binds += [Bind(b"", place) for place in EMPTIED if place not in named]
    plan.binds += _below(plan.binds, {*named, *plan.tmpfs}, mounts)
    plan.tmpfs |= _parents(named, plan.tmpfs)
    return plan


def _next(queue: list[Argument]) -> tuple[str, list[Argument]]:
    """Remove one option and its values from the queue."""
    option = queue.pop(0)
    two = ("--ro-bind", "--bind", "--dev-bind", "--ro-bind-data", "--symlink", "--setenv")
    one = ("--perms", "--size", "--uid", "--hostname", "--tmpfs", "--dir", "--remount-ro", "--add-seccomp-fd")
    count = 2 if option in two else 1 if option in (*one, *IMPLIED_WITH_VALUE) else 0
    if not count and option not in IMPLIED:
        raise SandboxError(f"the docker backend has no translation of bwrap's {option!r}; give it one in {__name__}")
    return str(option), [queue.pop(0) for _ in range(count)]


def _add(plan: Plan, option: str, values: list[Argument], mode: int, memory: str) -> None:
    """Add one option to the plan. `memory` are the options of a tmpfs of this size, mode and user."""
    source, target = values[0] if values else "", str(values[-1]) if values else ""
    if option in ("--ro-bind", "--bind"):
        plan.binds.append(Bind(Path(str(source)), target, read_only=option == "--ro-bind"))
    elif option == "--ro-bind-data":
        assert isinstance(source, bytes)
        plan.binds.append(Bind(source, target, mode))
    elif option == "--dev-bind":
        plan.devices.append(Path(str(source)))
    elif option == "--symlink":
        plan.links[target] = str(source)
    elif option == "--setenv":
        plan.environment[str(source)] = target
    elif option == "--tmpfs":
        plan.tmpfs[target] = f"rw,exec,nosuid,nodev,{memory}"  # an engine's own are noexec
    elif option == "--remount-ro" and target in plan.tmpfs:
        plan.tmpfs[target] = EMPTY_TMPFS
    elif option == "--dir":
        plan.folders.append(target)
    elif option == "--add-seccomp-fd":
        assert isinstance(source, bytes)
        plan.filter = source
    elif option in ("--uid", "--hostname"):
        plan.identity[option] = target
    elif option == "--remount-ro" and target not in ("/", "/dev"):
        raise SandboxError(f"the docker backend cannot make {target} read-only after the fact")


def _with_user_ids(bind: Bind, inside: str, uid: int, gid: int) -> Bind:
    """Put the user's ids of the host into the made-up accounts: without a user namespace they are the same inside."""
    if bind.target not in ("/etc/passwd", "/etc/group") or not isinstance(bind.source, bytes):
        return bind
    number = re.compile(rb"\b%s\b" % inside.encode())
    owners = iter((uid, gid) if bind.target == "/etc/passwd" else (gid,))
    return Bind(number.sub(lambda _: str(next(owners)).encode(), bind.source), bind.target, bind.mode)


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
        if not bind.read_only or isinstance(bind.source, bytes):
            continue
        for point in mounts:
            if point == bind.source or not point.is_relative_to(bind.source):
                continue
            target = PurePosixPath(bind.target, point.relative_to(bind.source))
            # A covered path stays covered.
            if not any(target.is_relative_to(place) for place in taken - {bind.target} if len(place) > len(bind.target)):
                found.append(Bind(point, str(target)))
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
