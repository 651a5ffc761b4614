"""Starting a box through a Docker engine: from a plan to a process 1 that has reported."""

from __future__ import annotations

import marshal
import os
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from arena.errors import SandboxError
from arena.sandboxes import SandboxSpec, cgroup, workspace_mount
from arena.sandboxes.docker.config import ENTER_INSIDE, IMAGE, User, configuration, staged
from arena.sandboxes.docker.engine import SHELF, remove, told
from arena.sandboxes.docker.plan import Bind, Plan, image
from arena.sandboxes.limits import fixed
from arena.sandboxes.profile import process_1
from arena.sandboxes.programs.enter import CONTROL, DOOR_INSIDE
from arena.sandboxes.python_env import Runtime
from arena.sandboxes.running import START_LIMIT_S, Live, hail
from arena.sandboxes.workspace_mount import Shelf
from arena.system import process, tempdirs

if TYPE_CHECKING:
    from docker import APIClient

DOOR = "door"
ENTER = Path(__file__).parents[1] / "programs" / "enter.py"
LOOK_S = 0.2


class Container:
    """A started container, as far as `Live` knows it: two streams, and an end."""

    def __init__(self, engine: APIClient, name: str, pid: int, group: cgroup.Group, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.group = group
        self.stdout: IO[bytes] = os.fdopen(stdout, "rb")
        self.stderr: IO[bytes] = os.fdopen(stderr, "rb")
        self.returncode: int | Any = None
        self.memory_ended = False
        """Whether its memory was used up, once it has ended."""
        self._name = name
        self._engine = engine
        self._turn = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, by the engine, which hears of the end a moment later than the kernel's proof of it."""
        with self._turn:
            if self.returncode is None:
                with told("the box is empty, but the engine does not say how it ended"):
                    code = int(self._engine.wait(self._name, timeout=timeout)["StatusCode"])
                    self.memory_ended = bool(self._engine.inspect_container(self._name)["State"]["OOMKilled"])
                self.returncode = code
            return int(self.returncode)


def start(
    engine: APIClient, undo: ExitStack, box: SandboxSpec, made: Plan, runtime: Runtime, user: User, shelf: Shelf | None
) -> tuple[Live, Container]:
    """Create the container and start it. What must be undone when it has ended goes onto `undo`."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempdirs.folder())
        (folder / DOOR).mkdir()
        (folder / DOOR).chmod(0o711)
        listener = stack.enter_context(_listener(folder / DOOR))
        binds = [*made.binds, Bind(ENTER.read_bytes(), ENTER_INSIDE), Bind(folder / DOOR, DOOR_INSIDE)]
        if shelf is not None:
            place = folder / SHELF
            place.mkdir()
            stack.enter_context(workspace_mount.shown(shelf.mount, place))
            binds = [replace(bind, source=place / shelf.path.name) if bind.source == shelf.path else bind for bind in binds]
        name = _created(engine, made, configuration(box, made, runtime, user, staged(binds, folder)))
        undo.callback(remove, engine, name)
        with told("the sandbox did not start"):
            engine.start(name)
            pid = int(engine.inspect_container(name)["State"]["Pid"])
        control = _accepted(engine, name, listener)
        group = cgroup.foreign(box.limits, pid, "docker")  # of process 1, which waits for its order: later it may have ended
    # The folder is gone: what is bound stays, but has no name any more, and nobody can connect to arena a second time.
    with ExitStack() as failed:
        failed.callback(control.close)
        (stdout, theirs_out), (stderr, theirs_err) = os.pipe2(os.O_CLOEXEC), os.pipe2(os.O_CLOEXEC)
        container = Container(engine, name, pid, group, stdout, stderr)
        failed.callback(container.stdout.close)
        failed.callback(container.stderr.close)
        _order(control, (theirs_out, theirs_err), box, made, runtime)
        try:
            init = hail(control, START_LIMIT_S)
        except TimeoutError:
            raise SandboxError(f"the sandbox did not start within {START_LIMIT_S:.0f} s") from None
        if init is None:
            raise SandboxError(f"the sandbox did not start: {container.stderr.read().decode(errors='replace').strip()}")
        failed.pop_all()
    return Live(container, init, control, fixed(box, "cpuset")), container


def _listener(door: Path) -> socket.socket:
    """Waits behind the door for process 1."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    here = os.open(door, os.O_PATH | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{here}/{CONTROL}")  # $TMPDIR may be longer than a socket's address
    finally:
        os.close(here)
    (door / CONTROL).chmod(0o666)  # for the box's user; the folder around the door is closed to everybody else
    listener.listen(1)
    return listener


def _created(engine: APIClient, made: Plan, wanted: dict[str, Any]) -> str:
    """The name of a new container, whose image is made on the spot when this engine does not have it yet."""
    from docker.errors import ImageNotFound

    with told("the engine refuses the box"):
        try:
            return str(engine.create_container_from_config(wanted)["Id"])
        except ImageNotFound:
            tag, content = image(made)
            engine.import_image_from_data(content, repository=IMAGE, tag=tag)
            return str(engine.create_container_from_config(wanted)["Id"])


def _accepted(engine: APIClient, name: str, listener: socket.socket) -> socket.socket:
    """Process 1's connection. Nothing else runs in the box yet, and nobody else may enter the socket's folder."""
    listener.settimeout(LOOK_S)
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        try:
            control, _ = listener.accept()
        except TimeoutError:
            with told("the sandbox did not start"):
                if not engine.inspect_container(name)["State"]["Running"]:
                    raise SandboxError(
                        f"the sandbox did not start: {engine.logs(name).decode(errors='replace').strip()}"
                    ) from None
            continue
        control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        return control
    raise SandboxError(f"the sandbox did not start within {START_LIMIT_S:.0f} s")


def _order(control: socket.socket, streams: tuple[int, int], box: SandboxSpec, made: Plan, runtime: Runtime) -> None:
    """Hand process 1 its order, the command's output streams, which are closed here, and the box's own descriptors."""
    number = max((2, *box.pass_fds)) + 1
    order = {
        "numbers": [number, 0, 1, 2, *box.pass_fds],
        "program": made.program,
        "argv": process_1(box, runtime, number),
        "env": {**made.environment, "PWD": "/workspace"},
    }
    stdin = process.content(box.stdin) if box.stdin else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    handed = [process.content(marshal.dumps(order)), stdin, *streams]
    try:
        socket.send_fds(control, [b"order"], [*handed, *box.pass_fds])
    except OSError as error:
        raise SandboxError(f"the sandbox did not start: its process 1 does not listen ({error.strerror})") from None
    finally:
        for fd in handed:
            os.close(fd)
