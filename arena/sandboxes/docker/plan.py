"""From bwrap's argument list to what a container engine is told: a pure function, so that both backends build one wall.

profile.py stays the only place where the wall is described. What is read here is its list, word by word; a word without a
translation is an error, so nothing that is added there can be missing from a container unnoticed.
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

GIVEN = {
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
"""Words without a value that say nothing more to an engine."""
SETTLED = {"--cap-drop", "--gid", "--proc", "--dev", "--chdir"}
"""Words with one value of which the same holds: CapDrop, User, a /proc and a /dev of its own, and enter.py's chdir."""
EMPTY = ("/etc/hostname", "/etc/resolv.conf")
"""What an engine would put there: names of the host, its name servers."""
NOTHING = "ro,nosuid,nodev,noexec,size=4k,mode=0555"
KERNEL_FOLDERS = ("/sys", "/sys/fs/cgroup")
"""A container has them and a bwrap box has not: covered."""


@dataclass(frozen=True)
class Bind:
    """A host path, or bytes that are to lie in a file of that mode, at a place inside."""

    source: Path | bytes
    target: str
    mode: int = 0o444
    read_only: bool = True


@dataclass(frozen=True)
class Plan:
    """What the engine is told, but for limits and the user."""

    binds: tuple[Bind, ...]
    tmpfs: Mapping[str, str]
    """Place inside -> mount options."""
    links: Mapping[str, str]
    """Place inside -> what it links to; these and `folders` are the image."""
    folders: tuple[str, ...]
    devices: tuple[Path, ...]
    environment: Mapping[str, str]
    hostname: str
    own_network: bool
    program: bytes
    """The system call filter."""


@dataclass
class _Draft:
    """A plan while it is read."""

    binds: list[Bind] = field(default_factory=list)
    tmpfs: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    devices: list[Path] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    single: dict[str, str] = field(default_factory=dict)
    program: bytes = b""


def plan(words: tuple[Argument, ...], uid: int, gid: int, mounts: tuple[Path, ...] = ()) -> Plan:
    """The container that shows what bwrap would show with these words, to that user. SandboxError for an unknown word.

    `mounts` are the places where the host has something mounted.
    """
    draft = _Draft(tmpfs=dict.fromkeys(KERNEL_FOLDERS, NOTHING))
    own_network = OWN_NETWORK in words
    queue = [word for word in words if word != OWN_NETWORK]
    mode, size = 0o755, ""
    while queue:
        option, values = _next(queue)
        if option == "--perms":
            mode = int(str(values[0]), 8)
        elif option == "--size":
            size = f"size={values[0]!s},"
        else:
            _add(draft, option, values, mode, f"{size}uid={uid},gid={gid},mode={mode:04o}")
            mode, size = 0o755, ""
    named = {bind.target for bind in draft.binds}
    binds = [_own_names(bind, draft.single["--uid"], uid, gid) for bind in draft.binds]
    binds += [Bind(b"", place) for place in EMPTY if place not in named]
    binds += _below(binds, {*named, *draft.tmpfs}, mounts)
    return Plan(
        binds=tuple(binds),
        tmpfs=draft.tmpfs | _parents(named, draft.tmpfs),
        links=draft.links,
        folders=tuple(draft.folders),
        devices=tuple(draft.devices),
        environment=draft.environment,
        hostname=draft.single["--hostname"],
        own_network=own_network,
        program=draft.program,
    )


def _next(queue: list[Argument]) -> tuple[str, list[Argument]]:
    """Take one option and its values off the queue."""
    option = queue.pop(0)
    two = ("--ro-bind", "--bind", "--dev-bind", "--ro-bind-data", "--symlink", "--setenv")
    one = (*SETTLED, "--perms", "--size", "--uid", "--hostname", "--tmpfs", "--dir", "--remount-ro", "--add-seccomp-fd")
    count = 2 if option in two else 1 if option in one else 0
    if not count and option not in GIVEN:
        raise SandboxError(f"the docker backend has no translation of bwrap's {option!r}; give it one in {__name__}")
    values = [queue.pop(0) for _ in range(count)]
    return str(option), values


def _add(draft: _Draft, option: str, values: list[Argument], mode: int, memory: str) -> None:
    """Note what one option asks for. `memory` are the options of a tmpfs of this size, mode and user."""
    source, target = values[0] if values else "", str(values[-1]) if values else ""
    if option in ("--ro-bind", "--bind"):
        draft.binds.append(Bind(Path(str(source)), target, read_only=option == "--ro-bind"))
    elif option == "--ro-bind-data":
        assert isinstance(source, bytes)
        draft.binds.append(Bind(source, target, mode))
    elif option == "--dev-bind":
        draft.devices.append(Path(str(source)))
    elif option == "--symlink":
        draft.links[target] = str(source)
    elif option == "--setenv":
        draft.environment[str(source)] = target
    elif option == "--tmpfs":
        draft.tmpfs[target] = f"rw,exec,nosuid,nodev,{memory}"  # an engine's own are noexec
    elif option == "--remount-ro" and target in draft.tmpfs:
        draft.tmpfs[target] = NOTHING
    elif option == "--dir":
        draft.folders.append(target)
    elif option == "--add-seccomp-fd":
        assert isinstance(source, bytes)
        draft.program = source
    elif option in ("--uid", "--hostname"):
        draft.single[option] = target
    elif option == "--remount-ro" and target not in ("/", "/dev"):
        raise SandboxError(f"the docker backend cannot make {target} read-only after the fact")


def _own_names(bind: Bind, inside: str, uid: int, gid: int) -> Bind:
    """Without a user namespace the box's user has its number of outside, which the made-up accounts must name."""
    if bind.target not in ("/etc/passwd", "/etc/group") or not isinstance(bind.source, bytes):
        return bind
    number = re.compile(rb"\b%s\b" % inside.encode())
    owners = iter((uid, gid) if bind.target == "/etc/passwd" else (gid,))
    return Bind(number.sub(lambda _: str(next(owners)).encode(), bind.source), bind.target, bind.mode)


def _parents(targets: set[str], tmpfs: Mapping[str, str]) -> dict[str, str]:
    """Folders between a private one and a file inside it, as memory of the user's own: the engine would make them root's."""
    found: dict[str, str] = {}
    for target in targets:
        above = [str(path) for path in PurePosixPath(target).parents]
        nearest = next((path for path in above if path in tmpfs), None)
        if nearest is not None and tmpfs[nearest] != NOTHING:
            found |= dict.fromkeys(above[: above.index(nearest)], re.sub("mode=.*", "mode=0755", tmpfs[nearest]))
    return found


def _below(binds: list[Bind], taken: set[str], mounts: tuple[Path, ...]) -> list[Bind]:
    """What is mounted below bound folders, bound once more: engines before 25 make only a folder's own mount read-only."""
    found = []
    for bind in binds:
        if not bind.read_only or isinstance(bind.source, bytes):
            continue
        for point in mounts:
            if point == bind.source or not point.is_relative_to(bind.source):
                continue
            target = PurePosixPath(bind.target, point.relative_to(bind.source))
            # What is covered there stays covered.
            if not any(target.is_relative_to(place) for place in taken - {bind.target} if len(place) > len(bind.target)):
                found.append(Bind(point, str(target)))
    return found


def mount_points(mountinfo: str) -> tuple[Path, ...]:
    """Places from the text of /proc/self/mountinfo, where a space is written as \\040."""
    fields = (line.split(" ")[4] for line in mountinfo.splitlines())
    return tuple(Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), field)) for field in fields)


def image(made: Plan) -> tuple[str, bytes]:
    """(tag, tar) of the image: the root with its links and folders, and nothing else. The tag names the content."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted({*made.folders, *made.links}):
            entry = tarfile.TarInfo(path.lstrip("/"))
            if path in made.links:
                entry.type, entry.linkname = tarfile.SYMTYPE, made.links[path]
            else:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
    return hashlib.sha256(packed.getvalue()).hexdigest()[:16], packed.getvalue()
