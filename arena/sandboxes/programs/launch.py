"""Launcher: runs outside the sandbox just before bwrap (`python -I -S launch FD`) and reads its order from FD: words of
`key=value`, each ended by NUL. launch.c is the same program.

As root it gives every folder that bwrap will bind a short name that the throw-away user can reach, in a mount namespace of
its own. Then it becomes that user. `bwrap --uid` alone would map the host's root into the sandbox, which could then open
/proc/sys/kernel/core_pattern for writing. As a plain user it only sets the limits. In both cases it finally becomes bwrap.
"""

# ruff: noqa: PTH103, PTH102, PTH120  (importing pathlib would add 6 ms to every start)
import ctypes
import os
import resource
import stat
import sys

STAGING = "/tmp"  # covered in our own namespace only. bwrap needs this folder to exist anyway, so it does.

CLONE_NEWNS = 0x00020000
MNT_DETACH = 2
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
PR_SET_NO_NEW_PRIVS = 38
SYS_MOVE_MOUNT, MOVE_MOUNT_F_EMPTY_PATH, AT_FDCWD = 429, 4, -100
"""System calls since Linux 5.0 have one number on all architectures."""

libc = ctypes.CDLL(None, use_errno=True)


def fail(what: str, error: int) -> None:
    """End with the reason on stderr; arena shows it unchanged."""
    sys.exit(f"{what}: {os.strerror(error)}")


def mount(source: str, target: str, fs_type: str | None, flags: int, options: str | None = None) -> None:
    """mount(2)."""
    words = [None if word is None else os.fsencode(word) for word in (source, target, fs_type, options)]
    if libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]):
        fail(f"cannot mount {source} on {target}", ctypes.get_errno())


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument."""
    if libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)):
        fail(f"prctl({option}, {value})", ctypes.get_errno())


def stage(sources: list[tuple[str, str]], workspace: int | None, uid: int) -> None:
    """Bind source number i at STAGING/i, so that parents which the user may not enter (a 0700 home) are out of its way.

    A `folder` is a number too. In it follow a `member` (NAME, a line's end, a host path to bind) or a `text` (MODE NAME, a line's
    end, the content), which is the user's. `workspace` is a descriptor of a detached mount; one of the sources lies in it.
    """
    if libc.unshare(CLONE_NEWNS):
        fail("arena runs as root but may not make a mount namespace (it lacks CAP_SYS_ADMIN)", ctypes.get_errno())
    # Before any other mount: nothing done here may ever show on the host.
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    # bwrap reads the table of all mounts for each bind, and no sandbox shows these.
    libc.umount2(b"/sys", MNT_DETACH)
    descriptors = []
    for kind, source in sources:
        path = source.partition("\n")[2] if kind == "member" else source if kind == "source" else "/"
        try:
            descriptors.append(os.open(path, os.O_PATH | os.O_CLOEXEC))
        except OSError as error:
            fail(f"cannot bind {path}", error.errno or 0)
    # All are open by now: the next mounts hide those that lie below STAGING themselves.
    if workspace is not None:  # attached, so that it can be bound from: kernels before 6.15 bind from attached mounts only
        os.set_inheritable(workspace, False)
        if libc.syscall(SYS_MOVE_MOUNT, workspace, b"", AT_FDCWD, os.fsencode(STAGING), MOVE_MOUNT_F_EMPTY_PATH):
            fail("cannot mount the workspace", ctypes.get_errno())
    mount("tmpfs", STAGING, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0711,size=64m")
    index = -1
    for (kind, source), descriptor in zip(sources, descriptors, strict=True):
        index += kind in ("source", "folder")
        target = f"{STAGING}/{index}"
        if kind == "folder":
            os.mkdir(target, 0o755)
            continue
        name, _, rest = source.partition("\n")
        if kind == "text":
            mode, _, name = name.partition(" ")
            put(f"{target}/{name}", os.fsencode(rest), int(mode, 8), uid)
            continue
        if kind == "member":
            target += f"/{name}"
            os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.mkdir(target, 0o711)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        mount(f"/proc/self/fd/{descriptor}", target, None, MS_BIND | MS_REC)


def put(target: str, content: bytes, mode: int, uid: int) -> None:
    """Write a file of that user."""
    os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        os.fchown(file.fileno(), uid, uid)
        os.fchmod(file.fileno(), mode)


def join_cgroup(group: str) -> None:
    """Enter a control group by its `cgroup.procs`."""
    try:
        with open(group, "w", encoding="ascii") as file:
            file.write("0")
    except OSError as error:
        fail(f"cannot enter the control group {group}", error.errno or 0)


def set_limit(which: int, value: int) -> None:
    """Set the soft and the hard limit, or keep a hard limit that is already lower."""
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def pin(cpus: list[str]) -> None:
    """Run on these processors only; child processes inherit this."""
    try:
        os.sched_setaffinity(0, map(int, cpus))
    except OSError as error:
        fail(f"cannot run on processors {' '.join(cpus)}", error.errno or 0)


def become_user(uid: int) -> None:
    """Become that user for good, without any other group."""
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        fail(f"arena runs as root but may not become user {uid}", error.errno or 0)


def main() -> None:
    """Carry out the order: bwrap, argv, env, group, limit, cpu, and with a uid: source, folder, member, text, workspace."""
    order: dict[str, list[str]] = {}
    sources: list[tuple[str, str]] = []
    with open(int(sys.argv[1]), "rb") as stream:
        for word in os.fsdecode(stream.read()).split("\0")[:-1]:
            key, _, value = word.partition("=")
            if key in ("source", "folder", "member", "text"):
                sources.append((key, value))
            else:
                order.setdefault(key, []).append(value)
    os.chdir("/")
    os.umask(0o022)
    bwrap = os.open(order["bwrap"][0], os.O_RDONLY | os.O_CLOEXEC)
    # Before anything is forked: a group entered after bwrap had forked limited nothing (16 processes allowed, 200 ran).
    for group in order.get("group", []):
        join_cgroup(group)
    # Memory that no process maps (a memfd) counts for none, and the kernel then ends the largest process: let it be the sandbox.
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
    for limit in order.get("limit", []):
        which, _, value = limit.partition(":")
        set_limit(int(which), int(value))
    if "cpu" in order:
        pin(order["cpu"])
    if "uid" in order:
        workspace = order.get("workspace")
        uid = int(order["uid"][0])
        stage(sources, int(workspace[0]) if workspace else None, uid)
        become_user(uid)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    os.execve(bwrap, order["argv"], dict(word.split("=", 1) for word in order["env"]))


if __name__ == "__main__":
    main()
