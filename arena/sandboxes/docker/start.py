"""Start a sandbox through a Docker engine: its configuration, which holds nothing secret, and the wait for process 1."""

from __future__ import annotations

import marshal
import os
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from arena.errors import SandboxError
from arena.sandboxes import SandboxSpec, cgroup, workspace_mount
from arena.sandboxes.docker.engine import OWNER, WORKSPACE_MOUNT, engine_errors, remove
from arena.sandboxes.docker.plan import INIT, Plan, image
from arena.sandboxes.host import opened_sockets
from arena.sandboxes.lifecycle import fixed_limits, rlimits
from arena.sandboxes.profile import HOSTNAME, WORKSPACE, Bind, init_command
from arena.sandboxes.programs.enter import CONTROL, SOCKET_FOLDER_INSIDE
from arena.sandboxes.python_env import PythonEnvironment, current_python
from arena.sandboxes.running import START_LIMIT_S, SandboxHandle, handshake
from arena.sandboxes.workspace_mount import WorkspaceMount
from arena.system import process, tempdirs

if TYPE_CHECKING:
    from docker import APIClient

SOCKET_FOLDER = "socket"
ENTER_INSIDE = "/run/arena/enter.py"
IMAGE = "arena-sandbox"
ENTER = Path(__file__).parents[1] / "programs" / "enter.py"
RETRY_S = 0.2


class Container:
    """A started container as a `LaunchedProcess`: two streams, and an end."""

    def __init__(self, engine: APIClient, name: str, pid: int, group: cgroup.SandboxCgroup, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.group = group
        self.stdout: IO[bytes] = os.fdopen(stdout, "rb")
        self.stderr: IO[bytes] = os.fdopen(stderr, "rb")
        self.returncode: int | Any = None
        self.memory_ended = False  # whether its memory was used up, once it has ended
        self._name = name
        self._engine = engine
        self._wait_lock = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status from the engine, which learns of the end a moment after the kernel has proven it."""
        with self._wait_lock:
            if self.returncode is None:
                with engine_errors("the sandbox is empty, but the engine does not report how it ended"):
                    code = int(self._engine.wait(self._name, timeout=timeout)["StatusCode"])
                    self.memory_ended = bool(self._engine.inspect_container(self._name)["State"]["OOMKilled"])
                self.returncode = code
            return int(self.returncode)


def start(
    engine: APIClient, undo: ExitStack, spec: SandboxSpec, plan: Plan, uid: int, mount: WorkspaceMount | None
) -> tuple[SandboxHandle, Container]:
    """Create the container and start it. `undo` gets the steps to take when it has ended."""
    python = current_python(spec.packages)
    with ExitStack() as stack:
        folder = stack.enter_context(tempdirs.folder())
        (folder / SOCKET_FOLDER).mkdir()
        (folder / SOCKET_FOLDER).chmod(0o711)
        listener = stack.enter_context(_listen(folder / SOCKET_FOLDER))
        binds = [*plan.binds, Bind(ENTER_INSIDE, ENTER.read_bytes()), Bind(SOCKET_FOLDER_INSIDE, folder / SOCKET_FOLDER)]
        if mount is not None:
            place = folder / WORKSPACE_MOUNT
            place.mkdir()
            stack.enter_context(workspace_mount.attached(mount.fd, place))
            binds = [replace(bind, source=place / mount.path.name) if bind.source == mount.path else bind for bind in binds]
        name = _create(engine, plan, configuration(spec, plan, python, uid, stage_mounts(binds, folder)))
        undo.callback(remove, engine, name)
        with engine_errors("the sandbox did not start"):
            engine.start(name)
            pid = int(engine.inspect_container(name)["State"]["Pid"])
        control = _accept(engine, name, listener)
        group = cgroup.engine_cgroup(spec.limits, pid, "docker")  # now: process 1 waits for its order, later it may have ended
    # The folder is gone: its bound files stay but have no name any more, and no process can connect to arena a second time.
    with opened_sockets(spec.bridges) as sockets, ExitStack() as failed:
        failed.callback(control.close)
        (stdout, theirs_out), (stderr, theirs_err) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        container = Container(engine, name, pid, group, stdout, stderr)
        failed.callback(container.stdout.close)
        failed.callback(container.stderr.close)
        _send_order(control, (theirs_out, theirs_err), spec, plan, python, sockets)
        try:
            init = handshake(control, START_LIMIT_S)
        except TimeoutError:
            raise SandboxError(f"the sandbox did not start within {START_LIMIT_S:.0f} s") from None
        if init is None:
            raise SandboxError(f"the sandbox did not start: {container.stderr.read().decode(errors='replace').strip()}")
        failed.pop_all()
    return SandboxHandle(container, init, control, fixed_limits(spec, "cpuset")), container


def stage_mounts(binds: Iterable[Bind], folder: Path) -> list[dict[str, Any]]:
    """The engine's mounts for these binds; bytes become files of the folder."""
    mounts = []
    for index, bind in enumerate(binds):
        source = bind.source
        if isinstance(source, bytes):
            path = folder / str(index)
            path.write_bytes(source)
            path.chmod(bind.mode)
            source = path
        mounts.append({"Type": "bind", "Source": str(source), "Target": bind.target, "ReadOnly": not bind.writable})
    return mounts


def configuration(
    spec: SandboxSpec, plan: Plan, python: PythonEnvironment, uid: int, mounts: list[dict[str, Any]]
) -> dict[str, Any]:
    """The container's configuration. The engine's own filter stays on: no seccomp option is given."""
    limits = spec.limits
    ulimits = {name.removeprefix("RLIMIT_").lower(): value for name, value in rlimits(spec, None).items()}
    return {
        "Image": f"{IMAGE}:{image(plan)[0]}",
        "Entrypoint": [python.interpreter, "-I", "-S", ENTER_INSIDE],
        "Env": [f"LD_LIBRARY_PATH={python.library_path}"] if python.library_path else [],  # the rest comes over the socket
        "User": f"{uid}:{uid}",  # outside as well as inside
        "Hostname": HOSTNAME,
        "Labels": {OWNER: tempdirs.owner()},
        "HostConfig": {
            "NetworkMode": "none" if plan.profile.own_network else "host",
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true"],
            "Init": False,
            "PidsLimit": limits.processes,
            "Memory": limits.memory_bytes or 0,
            "MemorySwap": limits.memory_bytes or 0,  # memory and swap together: no swap
            "NanoCpus": int((limits.cpus or 0) * 1e9),
            "CpusetCpus": ",".join(map(str, sorted(spec.cpus or ()))),
            "OomScoreAdj": 1000,
            "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in ulimits.items()],
            "Mounts": mounts,
            "Tmpfs": dict(plan.tmpfs),
            "Devices": [{"PathOnHost": at, "PathInContainer": at, "CgroupPermissions": "rw"} for at in map(str, plan.devices)],
            # Only the message of enter.py when it fails; the command's streams are pipes of arena's.
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "64k"}},
        },
    }


def _listen(folder: Path) -> socket.socket:
    """A socket in the folder that waits for process 1."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{fd}/{CONTROL}")  # $TMPDIR may be longer than a socket's address
    finally:
        os.close(fd)
    (folder / CONTROL).chmod(0o666)  # for the sandbox's user; the folder above this one is closed to all other users
    listener.listen(1)
    return listener


def _create(engine: APIClient, plan: Plan, wanted: dict[str, Any]) -> str:
    """The name of a new container. Its image is made now when this engine does not have it yet."""
    from docker.errors import ImageNotFound

    with engine_errors("the engine refuses the sandbox"):
        try:
            return str(engine.create_container_from_config(wanted)["Id"])
        except ImageNotFound:
            tag, content = image(plan)
            engine.import_image_from_data(content, repository=IMAGE, tag=tag)
            return str(engine.create_container_from_config(wanted)["Id"])


def _accept(engine: APIClient, name: str, listener: socket.socket) -> socket.socket:
    """Process 1's connection. No other process runs in the sandbox yet, and no other user may enter the socket's folder."""
    listener.settimeout(RETRY_S)
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        try:
            control, _ = listener.accept()
        except TimeoutError:
            with engine_errors("the sandbox did not start"):
                if not engine.inspect_container(name)["State"]["Running"]:
                    why = engine.logs(name).decode(errors="replace").strip()
                    raise SandboxError(f"the sandbox did not start: {why}") from None
            continue
        control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        return control
    raise SandboxError(f"the sandbox did not start within {START_LIMIT_S:.0f} s")


def _send_order(
    control: socket.socket,
    streams: tuple[int, int],
    spec: SandboxSpec,
    plan: Plan,
    python: PythonEnvironment,
    sockets: Mapping[int, int],
) -> None:
    """Send process 1 its order, the command's output streams (closed here afterwards), the sandbox's own descriptors and those of
    its bridges' sockets (port -> descriptor)."""
    number = max((2, *spec.pass_fds)) + 1
    inside = {port: number + 1 + index for index, port in enumerate(sockets)}
    order = {
        "numbers": [number, 0, 1, 2, *spec.pass_fds, *inside.values()],
        "filter": plan.profile.filter,
        "argv": init_command(spec, plan.profile, number, inside, INIT),
        "env": {**plan.profile.environment, "PWD": WORKSPACE},
    }
    stdin = process.readable_fd(spec.stdin) if spec.stdin else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    handed = [process.readable_fd(marshal.dumps(order)), stdin, *streams]
    try:
        socket.send_fds(control, [b"order"], [*handed, *spec.pass_fds, *sockets.values()])
    except OSError as error:
        raise SandboxError(f"the sandbox did not start: its process 1 does not listen ({error.strerror})") from None
    finally:
        for fd in handed:
            os.close(fd)
