"""From a `Profile` to bwrap's argument list: a pure function.

The list holds text, `bytes` that bwrap reads from a descriptor, and the `Path` of a host folder, file or device, which the
launcher may bind to another name first. It makes one folder of a `Gathered`: bwrap reads the table of all mounts for each bind,
and a hundred small ones took most of its time.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import assert_never

from arena.sandboxes.profile import HOSTNAME, USER, WORKSPACE, Bind, Cover, Device, Entry, Folder, Gathered, Link, Memory, Profile

Argument = str | bytes | Path | Gathered

NAMESPACES = (
    "--unshare-user",  # explicit: `--unshare-all` only tries, and goes on without one
    "--unshare-ipc",  # else the host's SysV shared memory opens
    "--unshare-pid",  # else daemons outlive the sandbox and host processes can be seen and killed
    "--unshare-uts",
    "--unshare-cgroup-try",  # hides the cgroup's path; old kernels have no such namespace
)
# No `--die-with-parent`: when the control socket closes, the sandbox init ends the sandbox, however arena died. That option kills
# bwrap, and just after its fork bwrap's child waits for a message from it: it waited for ever.
IDENTITY = (
    *("--uid", str(USER), "--gid", str(USER)),  # a stable identity, not a drop of privileges: the launcher does that
    "--disable-userns",  # no user namespaces below: the kernel's widest attack surface for the unprivileged
    "--new-session",  # no controlling terminal to type into
    "--as-pid-1",  # our own init instead of bwrap's, whose memory the command could read
    *("--cap-drop", "ALL"),  # started by root without this, the sandbox keeps every capability
    *("--hostname", HOSTNAME),
)
OWN_PLACES = (
    # /proc stays writable: cuInit writes its threads' names there. A fresh one: the host's shows the host's processes.
    *("--proc", "/proc"),
    *("--dev", "/dev"),
)


def bwrap_arguments(profile: Profile, gather: bool = False) -> tuple[Argument, ...]:
    """bwrap's options for this sandbox. `gather`: the launcher can."""
    return (
        *NAMESPACES,
        *(["--unshare-net"] if profile.own_network else []),
        *IDENTITY,
        "--clearenv",
        *(word for variable in profile.environment.items() for word in ("--setenv", *variable)),
        *OWN_PLACES,
        *(word for entry in (_gathered(profile.entries) if gather else profile.entries) for word in _words(entry, gather)),
        *("--chdir", WORKSPACE),
        # Last, when every mount point exists: without this `/` and `/dev` are writable memory without a bound.
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *("--add-seccomp-fd", profile.filter),
    )


def _gathered(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The same with the binds in /etc as one, in the place of the first. One inside the target of another stays where it is."""
    binds = [entry for entry in entries if isinstance(entry, Bind) and entry.target.startswith("/etc/") and not entry.writable]
    taken = {bind.target for bind in binds}
    joined = {
        id(bind): bind
        for bind in binds
        if taken.isdisjoint(map(str, PurePosixPath(bind.target).parents))
        and not (isinstance(bind.source, bytes) and b"\0" in bind.source)  # it would end the launcher's order
    }
    first = next(iter(joined), None)
    made = Gathered("/etc", tuple(joined.values()))
    return tuple(made if id(entry) == first else entry for entry in entries if id(entry) == first or id(entry) not in joined)


def _words(entry: Entry, gather: bool) -> tuple[Argument, ...]:
    """One entry in bwrap's words."""
    match entry:
        case Bind(target, bytes() as data, mode):
            return "--perms", f"{mode:04o}", "--ro-bind-data", data, target
        case Bind(target, source, writable=writable):
            return "--bind" if writable else "--ro-bind", source, target
        case Memory(target, size_bytes, mode):
            return "--size", str(size_bytes), "--perms", f"{mode:04o}", "--tmpfs", target
        case Cover(target):
            return "--perms", "0555", "--tmpfs", target, "--remount-ro", target
        case Link(target, to):
            return "--symlink", to, target
        case Folder(target):
            return "--dir", target
        case Gathered(target, binds):
            if gather:
                return "--ro-bind", entry, target
            return "--dir", target, *(word for bind in binds for word in _words(bind, gather))
        case Device(path):
            return "--dev-bind", path, str(path)  # a plain bind is `nodev`: "Insufficient Permissions"
        case _:
            assert_never(entry)
