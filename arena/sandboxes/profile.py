"""From a `SandboxSpec` to bwrap's argument list: a pure function, so the whole wall can be read and tested without building it.

The list holds three kinds of things: text as it stands, `bytes` that bwrap reads from a descriptor, and the `Path` of a host
folder, file or device, for which whoever starts bwrap may put another name.
"""

from __future__ import annotations

from pathlib import Path

from arena.errors import SandboxError
from arena.sandboxes import SandboxSpec
from arena.sandboxes.host import PATH, PROFILER, Host
from arena.sandboxes.programs.init import BRIDGES, HOME_FILES
from arena.sandboxes.python_env import Runtime
from arena.sandboxes.seccomp import program

Argument = str | bytes | Path

INIT = Path(__file__).with_name("programs") / "init.py"
INIT_INSIDE = "/run/arena/init.py"
BRIDGE = Path(__file__).with_name("programs") / "bridge.py"
BRIDGE_INSIDE = "/run/arena/bridge.py"
"""Beside init.py, which imports it."""

NAMESPACES = (
    "--unshare-user",  # said explicitly: `--unshare-all` only tries, and goes on without one
    "--unshare-ipc",  # else the host's SysV shared memory opens
    "--unshare-pid",  # else daemons outlive the box and host processes can be seen and killed
    "--unshare-uts",
    "--unshare-cgroup-try",  # hides the cgroup's path; old kernels have no such namespace
)
OWN_NETWORK = "--unshare-net"
"""Left out only of an open box: then abstract sockets, the host's loopback and a cloud's metadata address are reachable."""
# No `--die-with-parent`: at the end of the control socket init.py ends the box, however arena died. That option kills bwrap, and
# just after its fork bwrap's child waits for a word from it: it waited for ever.
IDENTITY = (
    *("--uid", "1000", "--gid", "1000"),  # a stable identity, not a drop of privileges: launch.py does that
    "--disable-userns",  # no user namespaces below: the kernel's widest door for the unprivileged
    "--new-session",  # no controlling terminal to type into
    "--as-pid-1",  # our own init.py instead of bwrap's, whose memory the command could read
    *("--cap-drop", "ALL"),  # started by root without this, the box keeps every capability
    *("--hostname", "arena"),
)
MADE_UP = {
    "/etc/passwd": b"agent:x:1000:1000:agent:/home/agent:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "/etc/group": b"agent:x:1000:\nnogroup:x:65534:\n",
    "/etc/hosts": b"127.0.0.1 localhost arena\n::1 localhost\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\n",
}
"""So that no account and no host of this machine is named inside."""
SEAL = (
    # Last, when every mount point exists: without this `/` and `/dev` are writable memory without a bound.
    *("--remount-ro", "/dev"),
    *("--remount-ro", "/"),
)


def arguments(box: SandboxSpec, runtime: Runtime, host: Host) -> tuple[Argument, ...]:
    """bwrap's options for this box. SandboxError when the box asks for what must not or cannot be given."""
    words: tuple[Argument, ...] = (
        *NAMESPACES,
        *_network(box, host),
        *IDENTITY,
        *_environment(box, runtime, host),
        *_system(runtime, host),
        *_python(runtime, host),
        # Stays writable: cuInit writes its threads' names there. A fresh one: the host's shows the host's processes.
        *("--proc", "/proc"),
        *_devices(box, host),
        *_private(box),
        *_work(box, host),
        *_bridges(box),
        *SEAL,
        *("--add-seccomp-fd", program(deny_affinity=box.cpus is not None)),
    )
    if broken := [word for word in words if isinstance(word, str) and "\0" in word]:
        # It would end the option, and what follows it would be one more.
        raise SandboxError(f"{broken[0]!r} holds a NUL character, which no variable or path of a box may")
    return words


def process_1(box: SandboxSpec, runtime: Runtime, control: int) -> list[str]:
    """Process 1: `-I -S` reads nothing that the box could have put in its way."""
    return [runtime.python, "-I", "-S", INIT_INSIDE, str(control), ",".join(map(str, box.pass_fds)), *box.command]


def environment(box: SandboxSpec, runtime: Runtime, host: Host) -> dict[str, str]:
    """All variables of the box; nothing is inherited. bwrap adds PWD."""
    places = (*box.path, "/opt/venv/bin", *(PATH if host.cuda else PATH[1:]))
    libraries = [runtime.library_path] if runtime.library_path else []
    if box.gpu is not None:
        libraries += host.library_path
    own = {"PATH": ":".join(places), "HOME": "/home/agent", "USER": "agent", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
    if libraries:
        own["LD_LIBRARY_PATH"] = ":".join(libraries)
    return own | dict(box.env)


def _environment(box: SandboxSpec, runtime: Runtime, host: Host) -> list[Argument]:
    words: list[Argument] = ["--clearenv"]
    for name, value in environment(box, runtime, host).items():
        words += ["--setenv", name, value]
    return words


def _system(runtime: Runtime, host: Host) -> list[Argument]:
    """/usr and single files of /etc. Not `/` with holes in it: what is not named here is absent."""
    words = _bind(Path("/usr"), "/usr", host, runtime.hidden)
    for path, target in host.system:
        words += ["--symlink", target, path] if target is not None else _bind(Path(path), path, host)
    for source in host.etc:
        words += _bind(source, str(source), host)
    for path, text in MADE_UP.items():
        words += _file(path, text)
    return words


def _python(runtime: Runtime, host: Host) -> list[Argument]:
    """/opt/python and a virtual environment at /opt/venv whose packages are bound one by one."""
    words: list[Argument] = []
    if runtime.prefix is not None:
        words += _bind(runtime.prefix, "/opt/python", host, runtime.hidden)
    home = runtime.python.rsplit("/", 1)[0]
    config = f"home = {home}\ninclude-system-site-packages = false\nversion = {runtime.version}\n"
    words += _file("/opt/venv/pyvenv.cfg", config.encode())
    for name in ("python", "python3"):
        words += ["--symlink", runtime.python, f"/opt/venv/bin/{name}"]
    site = f"/opt/venv/lib/python{runtime.version}/site-packages"
    words += ["--dir", site]
    for entry in runtime.packages:
        words += _bind(entry, f"{site}/{entry.name}", host)
    for name, source in (runtime.commands or {}).items():
        destination = f"/opt/venv/bin/{name}"
        words += _bind(source, destination, host) if isinstance(source, Path) else _file(destination, source, "0555")
    return words


def _devices(box: SandboxSpec, host: Host) -> list[Argument]:
    """/dev without the host's devices, but for the one GPU's nodes, and its profiler. A box shares driver and device memory."""
    words: list[Argument] = ["--dev", "/dev"]
    # bwrap's own /dev/shm has no bound.
    words += ["--size", str(box.limits.shm_bytes), "--perms", "1777", "--tmpfs", "/dev/shm"]
    if box.gpu is None:
        return words
    node = Path(f"/dev/nvidia{box.gpu}")
    if node not in host.devices:
        there = ", ".join(map(str, host.devices)) or "none"
        raise SandboxError(
            f"{node} does not exist (GPU device nodes of this machine: {there}); choose another GPU or run on the CPU"
        )
    if host.profiler:
        words += _bind(PROFILER, str(PROFILER), host)
    for path in (node, *(Path("/dev", name) for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"))):
        if path in host.devices:
            words += ["--dev-bind", path, str(path)]  # a plain bind is `nodev`: "Insufficient Permissions"
    return words


def _private(box: SandboxSpec) -> list[Argument]:
    """Memory of the box's own for what programs write. `--size` bounds bytes, not files."""
    words: list[Argument] = []
    for path, size_bytes, mode in (("/tmp", box.limits.tmp_bytes, "1777"), ("/home/agent", box.limits.home_bytes, "0700")):
        words += ["--size", str(size_bytes), "--perms", mode, "--tmpfs", path]
    return words


def _work(box: SandboxSpec, host: Host) -> list[Argument]:
    """The workspace, the box's files, and process 1."""
    words: list[Argument] = ["--dir", "/workspace"]
    if box.workspace is not None:
        # It lies in a secret folder, that of all runs. It alone may.
        words += ["--bind", box.workspace, "/workspace", *_covers(box.workspace, "/workspace", host, ())]
    words += _file(INIT_INSIDE, INIT.read_bytes())
    for path, folder in box.binds.items():
        words += _bind(folder, _absolute(path), host)
    for path, data in box.files.items():
        words += _file(_absolute(path), data)
    for path, data in box.home.items():
        # Not in HOME itself: there a mount could be neither replaced nor removed. init.py copies them.
        words += _file(f"{HOME_FILES}{_absolute(f'/{path}')}", data)
    return [*words, "--chdir", "/workspace"]


def _absolute(path: str) -> str:
    if not path.startswith("/") or ".." in Path(path).parts:
        raise SandboxError(f"{path!r}: a file of a box is named by its absolute path inside, and one of its home below HOME")
    return path


def _network(box: SandboxSpec, host: Host) -> list[Argument]:
    """A network of its own, which is empty but for its loopback; or, for an open box, the host's and its name servers."""
    if box.kind == "worker" and (box.network != "none" or box.bridges):
        raise SandboxError("a submission is run without any network: only an agent's box may have one, or a bridge")
    if box.network != "open":
        return [OWN_NETWORK]
    return _file("/etc/resolv.conf", host.resolver)


def _bridges(box: SandboxSpec) -> list[Argument]:
    """The sockets that process 1 leads its ports to. Who may connect to them is for their own permissions to say.

    The command can connect to them without the port, which gives it nothing more.
    """
    if not box.bridges:
        return []
    words = _file(BRIDGE_INSIDE, BRIDGE.read_bytes())
    for port, socket in sorted(box.bridges.items()):
        if not 1024 <= port < 1 << 16:
            raise SandboxError(f"a bridge on port {port}: process 1 is not root and listens on ports from 1024 to 65535 only")
        words += ["--ro-bind", socket, f"{BRIDGES}/{port}"]
    return words


def _file(path: str, data: bytes, mode: str = "0444") -> list[Argument]:
    return ["--perms", mode, "--ro-bind-data", data, path]


def _bind(source: Path, destination: str, host: Host, hidden: tuple[Path, ...] = ()) -> list[Argument]:
    """A host path, read-only, with what is secret or `hidden` in it covered."""
    for secret in (*host.secret_folders, *host.secret_files):
        if _inside(source, secret):
            raise SandboxError(
                f"{source} would be shown in the sandbox at {destination}, but lies in {secret}, which must not be"
            )
    return ["--ro-bind", source, destination, *_covers(source, destination, host, hidden)]


def _covers(source: Path, destination: str, host: Host, hidden: tuple[Path, ...]) -> list[Argument]:
    """Empty read-only folders and files over what lies below `source` and is not to be seen."""
    folders = {path for path in (*host.secret_folders, *hidden) if _inside(path, source) and path != source}
    files = {path for path in host.secret_files if _inside(path, source) and path != source}
    words: list[Argument] = []
    for path in sorted(folders | files):
        if not folders.isdisjoint(path.parents):
            continue  # under a cover already, where nothing can be mounted any more
        place = f"{destination}/{path.relative_to(source)}"
        words += _file(place, b"", "0000") if path in files else ["--perms", "0555", "--tmpfs", place, "--remount-ro", place]
    return words


def _inside(path: Path, folder: Path) -> bool:
    """`is_relative_to`, 20 times faster: it is asked some 600 times for a box."""
    return f"{path}/".startswith(f"{folder}/")
