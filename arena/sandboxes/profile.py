"""From a `SandboxSpec` to a `Profile`: all that a sandbox shows, as data. A pure function, so that it can be read and tested
without a sandbox. Each backend renders the same profile: bwrap/arguments.py and docker/plan.py.
"""

from __future__ import annotations

import functools
import importlib.util
import marshal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from arena.errors import SandboxError
from arena.sandboxes import SandboxSpec
from arena.sandboxes.host import PATH, PROFILER, Host
from arena.sandboxes.programs.init import HOME_FILES
from arena.sandboxes.python_env import PythonEnvironment
from arena.sandboxes.seccomp import compile_filter

PROGRAMS = Path(__file__).with_name("programs")
INIT_CODE = "/run/arena/init.pyc"
USER = 1000
"""The user's and the group's number inside, where the sandbox has a user namespace of its own."""
HOSTNAME = "arena"
WORKSPACE = "/workspace"  # the working folder of the command
OWN_VARIABLES = ("PATH", "HOME", "USER", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "PWD")
"""Variables that every sandbox sets itself."""


@dataclass(frozen=True)
class Bind:
    """A host path at `target`; or a file with these bytes and that mode. Read-only unless `writable`."""

    target: str
    source: Path | bytes
    mode: int = 0o444
    writable: bool = False


@dataclass(frozen=True)
class Memory:
    """A tmpfs for files that programs write. Its size limits their bytes, not their number."""

    target: str
    size_bytes: int
    mode: int


@dataclass(frozen=True)
class Cover:
    """An empty read-only folder over one that must not be seen."""

    target: str


@dataclass(frozen=True)
class Link:
    """A symbolic link at `target`."""

    target: str
    to: str


@dataclass(frozen=True)
class Folder:
    """An empty folder of the read-only root."""

    target: str


@dataclass(frozen=True)
class Gathered:
    """A read-only folder with these binds in it, all read-only, none inside another. The same as the binds in an empty folder."""

    target: str
    binds: tuple[Bind, ...]


@dataclass(frozen=True)
class Device:
    """A device node of the host, under the same name."""

    path: Path


Entry = Bind | Memory | Cover | Link | Folder | Gathered | Device


@dataclass(frozen=True)
class Profile:
    """What a sandbox shows besides a /proc and a /dev of its own. Nothing else of the host is in it."""

    entries: tuple[Entry, ...]  # in the order of mounting: an entry may lie inside an earlier one
    environment: Mapping[str, str]  # all variables
    own_network: bool
    """False shares the host's network: abstract sockets, the host's loopback and a cloud's metadata address are reachable."""
    filter: bytes  # the system call filter, as BPF
    init: bytes | tuple[str, ...]  # process 1: a compiled program, or how the command line of the Python one begins

    @property
    def shown(self) -> tuple[Path, ...]:
        """The host's files and folders that the sandbox shows."""
        binds = (bind for entry in self.entries for bind in (entry.binds if isinstance(entry, Gathered) else (entry,)))
        return tuple(bind.source for bind in binds if isinstance(bind, Bind) and isinstance(bind.source, Path))


def profile(spec: SandboxSpec, python: PythonEnvironment, host: Host, user: int = USER) -> Profile:
    """The profile of this sandbox, whose user and group have that number inside.

    SandboxError when the spec asks for something forbidden or impossible.
    """
    if spec.kind == "worker" and (spec.network != "none" or spec.bridges):
        raise SandboxError("a submission runs without any network: only an agent's sandbox may have one, or a bridge")
    host = replace(host, replaced=spec.replaced)
    entries = (
        *_system(python, host),
        *_made_up(user),
        *([Bind("/etc/resolv.conf", host.resolver)] if spec.network == "open" else []),
        *_python(python, host),
        *_devices(spec, host),
        Memory("/dev/shm", spec.limits.shm_bytes, 0o1777),
        Memory("/tmp", spec.limits.tmp_bytes, 0o1777),
        Memory("/home/agent", spec.limits.home_bytes, 0o700),
        *_work(spec, host),
        *_bridges(spec, host),
    )
    made = Profile(
        entries,
        environment(spec, python, host),
        own_network=spec.network != "open",
        filter=compile_filter(deny_affinity=spec.cpus is not None, internet_sockets=internet_sockets(spec)),
        # With `-I -S` Python reads no file that the sandbox could have planted.
        init=host.init or (python.interpreter, "-I", "-S", INIT_CODE),
    )
    targets = (entry.target for entry in entries if not isinstance(entry, Device))
    if broken := [word for word in (*targets, *made.environment, *made.environment.values()) if "\0" in word]:
        # It would end the option, and the text after it would be another one.
        raise SandboxError(f"{broken[0]!r} holds a NUL character, which no variable or path of a sandbox may contain")
    return made


def internet_sockets(spec: SandboxSpec) -> bool:
    """Whether the sandbox may make TCP, UDP and netlink sockets. On a GPU, Nsight Compute talks to what it profiles by TCP."""
    return spec.kind == "agent" or spec.gpu is not None


@functools.cache
def compiled(program: str) -> bytes:
    """One of the programs as byte code. To compile it at each start would take 3 to 4 ms of processor time."""
    source = PROGRAMS / f"{program}.py"
    code = compile(source.read_bytes(), source.name, "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


def init_command(spec: SandboxSpec, shown: Profile, control: int, sockets: Mapping[int, int], program: str) -> list[str]:
    """Argument list of process 1; `sockets` are the bridges, port -> descriptor. `program` is the path of the compiled one."""
    bridges = ",".join(f"{port}={fd}" for port, fd in sockets.items())
    kept = ",".join(map(str, spec.pass_fds))
    begin = (program,) if isinstance(shown.init, bytes) else shown.init
    return [*begin, str(control), kept, bridges, *spec.command]


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


def _system(python: PythonEnvironment, host: Host) -> list[Entry]:
    """/usr and single files of /etc. A path of the host that is not named here is absent."""
    entries = _bound(Path("/usr"), "/usr", host, python.hidden)
    for path, to in host.system:
        entries += [Link(path, to)] if to is not None else _bound(Path(path), path, host)
    for source in host.etc:
        entries += _bound(source, str(source), host)
    return entries


def _made_up(user: int) -> list[Entry]:
    """Files of /etc that name no account and no host of this machine."""
    files = {
        "passwd": f"agent:x:{user}:{user}:agent:/home/agent:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
        "group": f"agent:x:{user}:\nnogroup:x:65534:\n",
        "hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    }
    return [Bind(f"/etc/{name}", text.encode()) for name, text in files.items()]


def _python(python: PythonEnvironment, host: Host) -> list[Entry]:
    """/opt/python and a virtual environment at /opt/venv that holds the allowed packages and no other."""
    entries = [] if python.prefix is None else _bound(python.prefix, "/opt/python", host, python.hidden)
    home = python.interpreter.rsplit("/", 1)[0]
    config = f"home = {home}\ninclude-system-site-packages = false\nversion = {python.version}\n"
    site = f"/opt/venv/lib/python{python.version}/site-packages"
    entries += [
        Bind("/opt/venv/pyvenv.cfg", config.encode()),
        *(Link(f"/opt/venv/bin/{name}", python.interpreter) for name in ("python", "python3")),
        Gathered(site, tuple(Bind(f"{site}/{package.name}", package) for package in python.packages)),
    ]
    for package in python.packages:
        whole = Bind(f"{site}/{package.name}", package)
        entries += [entry for entry in _bound(package, whole.target, host) if entry != whole]  # what covers a part of it
    for name, source in (python.commands or {}).items():
        target = f"/opt/venv/bin/{name}"
        entries += _bound(source, target, host) if isinstance(source, Path) else [Bind(target, source, 0o555)]
    return entries


def _devices(spec: SandboxSpec, host: Host) -> list[Entry]:
    """The one GPU's nodes, and its profiler. Sandboxes share the driver and the device's memory."""
    if spec.gpu is None:
        return []
    node = Path(f"/dev/nvidia{spec.gpu}")
    if node not in host.devices:
        there = ", ".join(map(str, host.devices)) or "none"
        raise SandboxError(
            f"{node} does not exist (GPU device nodes of this machine: {there}); choose another GPU or run on the CPU"
        )
    nodes = (node, *(Path("/dev", name) for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")))
    profiler = _bound(PROFILER, str(PROFILER), host) if host.profiler else []
    return [*profiler, *(Device(path) for path in nodes if path in host.devices)]


def _work(spec: SandboxSpec, host: Host) -> list[Entry]:
    """The workspace, the sandbox's files, and process 1."""
    entries: list[Entry] = [Folder(WORKSPACE)]
    if spec.workspace is not None:
        # It lies in a secret folder, that of all runs. Only the workspace may.
        entries += [Bind(WORKSPACE, spec.workspace, writable=True), *_covers(spec.workspace, WORKSPACE, host, ())]
    if not host.init:
        entries.append(Bind(INIT_CODE, compiled("init")))
    for path, folder in spec.binds.items():
        entries += _bound(folder, _absolute(path), host)
    entries += [Bind(_absolute(path), data) for path, data in spec.files.items()]
    entries += [Bind(_absolute(path), data, 0o555) for path, data in spec.programs.items()]
    # Not in HOME itself: there a mount could be neither replaced nor removed. The sandbox init copies them.
    entries += [Bind(f"{HOME_FILES}{_absolute(f'/{path}')}", data) for path, data in spec.home.items()]
    return entries


def _absolute(path: str) -> str:
    if not path.startswith("/") or ".." in Path(path).parts:
        raise SandboxError(
            f"{path!r}: give the absolute path of a file inside the sandbox, or the path below HOME for one of its home"
        )
    return path


def _bridges(spec: SandboxSpec, host: Host) -> list[Entry]:
    """The program of the bridges, beside init.py, which imports it. The sockets reach process 1 as descriptors: none is shown."""
    for port in spec.bridges:
        if not 1024 <= port < 1 << 16:
            raise SandboxError(f"a bridge on port {port}: process 1 is not root and listens on ports from 1024 to 65535 only")
    return [Bind("/run/arena/bridge.pyc", compiled("bridge"))] if spec.bridges and not host.init else []


def _bound(source: Path, target: str, host: Host, hidden: tuple[Path, ...] = ()) -> list[Entry]:
    """A host path, read-only, with secret and `hidden` paths in it covered, and replaced files as they are to be shown."""
    inside = f"{source}/"
    for folder, secret in host.secrets:
        if inside.startswith(folder):
            raise SandboxError(f"{source} would be shown in the sandbox at {target}, but lies in {secret}, which is secret")
    if source in host.replaced:
        return [Bind(target, host.replaced[source])]
    return [Bind(target, source), *_covers(source, target, host, hidden)]


def _covers(source: Path, target: str, host: Host, hidden: tuple[Path, ...]) -> list[Entry]:
    """Covers over the folders and files below `source` that must not be seen, and other content over replaced files."""
    inside = f"{source}/"
    secret = {path for text, path in host.secrets if text.startswith(inside) and path != source}
    folders = secret.difference(host.secret_files) | {path for path in hidden if f"{path}/".startswith(inside) and path != source}
    files = {path: Bind("", content) for path, content in host.replaced.items() if f"{path}/".startswith(inside)}
    files |= {path: Bind("", b"", 0o000) for path in secret.intersection(host.secret_files)}
    entries: list[Entry] = []
    for path in sorted(folders | files.keys()):
        if not folders.isdisjoint(path.parents):
            continue  # under a cover already, where nothing can be mounted any more
        place = f"{target}/{path.relative_to(source)}"
        entries.append(Cover(place) if path in folders else replace(files[path], target=place))
    return entries
