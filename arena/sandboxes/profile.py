"""From a `SandboxSpec` to bwrap's argument list: a pure function, so the sandbox can be read and tested without starting it.

The list holds text, `bytes` that bwrap reads from a descriptor, and the `Path` of a host folder, file or device, which the
start of bwrap may replace by another name.
"""

from __future__ import annotations

import functools
import importlib.util
import marshal
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from arena.errors import SandboxError
from arena.sandboxes import SandboxSpec
from arena.sandboxes.host import PATH, PROFILER, Host
from arena.sandboxes.programs.init import HOME_FILES
from arena.sandboxes.python_env import PythonEnvironment
from arena.sandboxes.seccomp import compile_filter

Argument = str | bytes | Path

PROGRAMS = Path(__file__).with_name("programs")
INIT_INSIDE = "/run/arena/init.pyc"

NAMESPACES = (
    "--unshare-user",  # explicit: `--unshare-all` only tries, and goes on without one
    "--unshare-ipc",  # else the host's SysV shared memory opens
    "--unshare-pid",  # else daemons outlive the sandbox and host processes can be seen and killed
    "--unshare-uts",
    "--unshare-cgroup-try",  # hides the cgroup's path; old kernels have no such namespace
)
OWN_NETWORK = "--unshare-net"
"""Left out only for an open network: then abstract sockets, the host's loopback and a cloud's metadata address are reachable."""
# No `--die-with-parent`: when the control socket closes, init.py ends the sandbox, however arena died. That option kills
# bwrap, and just after its fork bwrap's child waits for a message from it: it waited for ever.
IDENTITY = (
    *("--uid", "1000", "--gid", "1000"),  # a stable identity, not a drop of privileges: launch.py does that
    "--disable-userns",  # no user namespaces below: the kernel's widest attack surface for the unprivileged
    "--new-session",  # no controlling terminal to type into
    "--as-pid-1",  # our own init.py instead of bwrap's, whose memory the command could read
    *("--cap-drop", "ALL"),  # started by root without this, the sandbox keeps every capability
    *("--hostname", "arena"),
)
MADE_UP = {
    "/etc/passwd": b"agent:x:1000:1000:agent:/home/agent:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "/etc/group": b"agent:x:1000:\nnogroup:x:65534:\n",
    "/etc/hosts": b"127.0.0.1 localhost arena\n::1 localhost\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\n",
}
"""These name no account and no host of this machine."""


def bwrap_arguments(spec: SandboxSpec, python: PythonEnvironment, host: Host) -> tuple[Argument, ...]:
    """bwrap's options for this sandbox. SandboxError when the spec asks for something forbidden or impossible."""
    host = replace(host, replaced=spec.replaced)
    arguments: tuple[Argument, ...] = (
        *NAMESPACES,
        *_network(spec, host),
        *IDENTITY,
        "--clearenv",
        *(word for variable in environment(spec, python, host).items() for word in ("--setenv", *variable)),
        *_system(python, host),
        *_python(python, host),
        # Stays writable: cuInit writes its threads' names there. A fresh one: the host's shows the host's processes.
        *("--proc", "/proc"),
        *_devices(spec, host),
        *_memory("/tmp", spec.limits.tmp_bytes, "1777"),
        *_memory("/home/agent", spec.limits.home_bytes, "0700"),
        *_work(spec, host),
        *_bridges(spec),
        # Last, when every mount point exists: without this `/` and `/dev` are writable memory without a bound.
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *("--add-seccomp-fd", compile_filter(deny_affinity=spec.cpus is not None, internet_sockets=internet_sockets(spec))),
    )
    if broken := [word for word in arguments if isinstance(word, str) and "\0" in word]:
        # It would end the option, and the text after it would be another one.
        raise SandboxError(f"{broken[0]!r} holds a NUL character, which no variable or path of a sandbox may contain")
    return arguments


def internet_sockets(spec: SandboxSpec) -> bool:
    """Whether the sandbox may make TCP, UDP and netlink sockets. On a GPU, Nsight Compute talks to what it profiles by TCP."""
    return spec.kind == "agent" or spec.gpu is not None


@functools.cache
def compiled(program: str) -> bytes:
    """One of the programs as byte code. To compile it at each start would take 3 to 4 ms of processor time."""
    source = PROGRAMS / f"{program}.py"
    code = compile(source.read_bytes(), source.name, "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


def shown_paths(arguments: tuple[Argument, ...]) -> tuple[Path, ...]:
    """The host's files and folders that a sandbox with these arguments shows."""
    return tuple(path for option, path in pairwise(arguments) if option in ("--ro-bind", "--bind") and isinstance(path, Path))


def init_command(spec: SandboxSpec, python: PythonEnvironment, control: int, sockets: Mapping[int, int]) -> list[str]:
    """Argument list of process 1; `sockets` are the bridges, port -> descriptor. With `-I -S` Python reads no file that the
    sandbox could have planted."""
    bridges = ",".join(f"{port}={fd}" for port, fd in sockets.items())
    kept = ",".join(map(str, spec.pass_fds))
    return [python.interpreter, "-I", "-S", INIT_INSIDE, str(control), kept, bridges, *spec.command]


def environment(spec: SandboxSpec, python: PythonEnvironment, host: Host) -> dict[str, str]:
    """All variables of the sandbox; nothing is inherited. bwrap adds PWD."""
    places = (*spec.path, "/opt/venv/bin", *(PATH if host.cuda else PATH[1:]))
    libraries = [python.library_path] if python.library_path else []
    if spec.gpu is not None:
        libraries += host.library_path
    own = {"PATH": ":".join(places), "HOME": "/home/agent", "USER": "agent", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
    if libraries:
        own["LD_LIBRARY_PATH"] = ":".join(libraries)
    return own | dict(spec.env)


def _system(python: PythonEnvironment, host: Host) -> list[Argument]:
    """/usr and single files of /etc. A path of the host that is not named here is absent."""
    arguments = _bind(Path("/usr"), "/usr", host, python.hidden)
    for path, target in host.system:
        arguments += ["--symlink", target, path] if target is not None else _bind(Path(path), path, host)
    for source in host.etc:
        arguments += _bind(source, str(source), host)
    for path, text in MADE_UP.items():
        arguments += _file(path, text)
    return arguments


def _python(python: PythonEnvironment, host: Host) -> list[Argument]:
    """/opt/python and a virtual environment at /opt/venv whose packages are bound one by one."""
    arguments: list[Argument] = []
    if python.prefix is not None:
        arguments += _bind(python.prefix, "/opt/python", host, python.hidden)
    home = python.interpreter.rsplit("/", 1)[0]
    config = f"home = {home}\ninclude-system-site-packages = false\nversion = {python.version}\n"
    arguments += _file("/opt/venv/pyvenv.cfg", config.encode())
    for name in ("python", "python3"):
        arguments += ["--symlink", python.interpreter, f"/opt/venv/bin/{name}"]
    site = f"/opt/venv/lib/python{python.version}/site-packages"
    arguments += ["--dir", site]
    for entry in python.packages:
        arguments += _bind(entry, f"{site}/{entry.name}", host)
    for name, source in (python.commands or {}).items():
        destination = f"/opt/venv/bin/{name}"
        arguments += _bind(source, destination, host) if isinstance(source, Path) else _file(destination, source, "0555")
    return arguments


def _devices(spec: SandboxSpec, host: Host) -> list[Argument]:
    """/dev with the one GPU's nodes and no other device of the host; its profiler. A sandbox shares driver and device memory."""
    arguments = ["--dev", "/dev", *_memory("/dev/shm", spec.limits.shm_bytes, "1777")]  # bwrap's own /dev/shm has no limit
    if spec.gpu is None:
        return arguments
    node = Path(f"/dev/nvidia{spec.gpu}")
    if node not in host.devices:
        there = ", ".join(map(str, host.devices)) or "none"
        raise SandboxError(
            f"{node} does not exist (GPU device nodes of this machine: {there}); choose another GPU or run on the CPU"
        )
    if host.profiler:
        arguments += _bind(PROFILER, str(PROFILER), host)
    for path in (node, *(Path("/dev", name) for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"))):
        if path in host.devices:
            arguments += ["--dev-bind", path, str(path)]  # a plain bind is `nodev`: "Insufficient Permissions"
    return arguments


def _memory(path: str, size_bytes: int, mode: str) -> list[Argument]:
    """The sandbox's own memory for files that programs write. `--size` limits bytes, not files."""
    return ["--size", str(size_bytes), "--perms", mode, "--tmpfs", path]


def _work(spec: SandboxSpec, host: Host) -> list[Argument]:
    """The workspace, the sandbox's files, and process 1."""
    arguments: list[Argument] = ["--dir", "/workspace"]
    if spec.workspace is not None:
        # It lies in a secret folder, that of all runs. Only the workspace may.
        arguments += ["--bind", spec.workspace, "/workspace", *_covers(spec.workspace, "/workspace", host, ())]
    arguments += _file(INIT_INSIDE, compiled("init"))
    for path, folder in spec.binds.items():
        arguments += _bind(folder, _absolute(path), host)
    for path, data in spec.files.items():
        arguments += _file(_absolute(path), data)
    for path, data in spec.home.items():
        # Not in HOME itself: there a mount could be neither replaced nor removed. init.py copies them.
        arguments += _file(f"{HOME_FILES}{_absolute(f'/{path}')}", data)
    return [*arguments, "--chdir", "/workspace"]


def _absolute(path: str) -> str:
    if not path.startswith("/") or ".." in Path(path).parts:
        raise SandboxError(
            f"{path!r}: give the absolute path of a file inside the sandbox, or the path below HOME for one of its home"
        )
    return path


def _network(spec: SandboxSpec, host: Host) -> list[Argument]:
    """A network of its own that holds only its loopback; or, for an open network, the host's with its name servers."""
    if spec.kind == "worker" and (spec.network != "none" or spec.bridges):
        raise SandboxError("a submission runs without any network: only an agent's sandbox may have one, or a bridge")
    if spec.network != "open":
        return [OWN_NETWORK]
    return _file("/etc/resolv.conf", host.resolver)


def _bridges(spec: SandboxSpec) -> list[Argument]:
    """The program of the bridges, beside init.py, which imports it. The sockets reach process 1 as descriptors: none is shown."""
    for port in spec.bridges:
        if not 1024 <= port < 1 << 16:
            raise SandboxError(f"a bridge on port {port}: process 1 is not root and listens on ports from 1024 to 65535 only")
    return _file("/run/arena/bridge.pyc", compiled("bridge")) if spec.bridges else []


def _file(path: str, data: bytes, mode: str = "0444") -> list[Argument]:
    return ["--perms", mode, "--ro-bind-data", data, path]


def _bind(source: Path, destination: str, host: Host, hidden: tuple[Path, ...] = ()) -> list[Argument]:
    """A host path, read-only, with secret and `hidden` paths in it covered, and replaced files as they are to be shown."""
    for secret in (*host.secret_folders, *host.secret_files):
        if _inside(source, secret):
            raise SandboxError(f"{source} would be shown in the sandbox at {destination}, but lies in {secret}, which is secret")
    if source in host.replaced:
        return _file(destination, host.replaced[source])
    return ["--ro-bind", source, destination, *_covers(source, destination, host, hidden)]


def _covers(source: Path, destination: str, host: Host, hidden: tuple[Path, ...]) -> list[Argument]:
    """Empty read-only folders and files over the paths below `source` that must not be seen, and other content over replaced
    files."""
    folders = {path for path in (*host.secret_folders, *hidden) if _inside(path, source) and path != source}
    files = {path: content for path, content in host.replaced.items() if _inside(path, source)}
    secret = {path for path in host.secret_files if _inside(path, source) and path != source}
    arguments: list[Argument] = []
    for path in sorted(folders | secret | files.keys()):
        if not folders.isdisjoint(path.parents):
            continue  # under a cover already, where nothing can be mounted any more
        place = f"{destination}/{path.relative_to(source)}"
        if path in folders:
            arguments += ["--perms", "0555", "--tmpfs", place, "--remount-ro", place]
        else:
            arguments += _file(place, b"", "0000") if path in secret else _file(place, files[path])
    return arguments


def _inside(path: Path, folder: Path) -> bool:
    """`is_relative_to`, 20 times faster: called some 600 times per sandbox."""
    return f"{path}/".startswith(f"{folder}/")
