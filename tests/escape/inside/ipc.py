"""Other programs: shared memory, queues, sockets, and what an earlier sandbox left."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from pathlib import Path

from .common import PLAN, Open, Untried, buffer, call, find_lure, libc, probe, read

LEFTOVER = "arena-leftover"
"""The name under which `plant` leaves things in an earlier sandbox."""


@probe("ipc")
def shared_memory() -> None:
    """SysV shared memory of the host, by its key, attached and read."""
    attach = libc.shmat
    attach.restype = ctypes.c_void_p
    address = attach(call("shmget", PLAN["ipc_key"], 0, 0), None, 0o10000)
    if address in (None, ctypes.c_void_p(-1).value):
        raise Open("found, though not attached")
    find_lure(ctypes.string_at(address, 4096), "shared memory")


@probe("ipc")
def semaphores() -> None:
    """SysV semaphores of the host, by their key."""
    raise Open(f"set {call('semget', PLAN['ipc_key'], 0, 0)}")


@probe("ipc")
def message_queue() -> None:
    """A SysV message queue of the host, by its key."""
    queue, message = call("msgget", PLAN["ipc_key"], 0), buffer(1024)
    call("msgrcv", queue, message, 1000, 0, 0o4000)
    find_lure(message.raw, "message queue")
    raise Open("a message was read")


@probe("ipc")
def ipc_listing() -> str:
    """The listing of all SysV objects in /proc/sysvipc."""
    for kind in ("shm", "sem", "msg"):
        if lines := read(f"/proc/sysvipc/{kind}").splitlines()[1:]:
            raise Open(f"{kind}: {len(lines)} of the host")
    return "empty"


@probe("ipc")
def posix_queue() -> None:
    """A POSIX message queue of the host, by its name."""
    queue = call("mq_open", PLAN["queue"].encode(), os.O_RDONLY | os.O_NONBLOCK, 0, 0)
    message = buffer(8192)
    try:
        call("mq_timedreceive", queue, message, 8192, 0, buffer(16, struct.pack("qq", 0, 0)))
    except OSError as error:
        raise Open(f"opened ({error.strerror})") from None
    find_lure(message.raw, "posix queue")
    raise Open("a message was read")


@probe("outside")
def shared_memory_file() -> str:
    """A file in the host's /dev/shm, by its name and by the listing."""
    names = os.listdir("/dev/shm")
    for name in names:
        find_lure(read(f"/dev/shm/{name}"), f"/dev/shm/{name}")
    return f"{len(names)} files of the sandbox's own"


@probe("net")
def abstract_socket() -> None:
    """An abstract unix socket of the host, by its name -- CVE-2020-15257 (containerd)."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + PLAN["abstract"])
        find_lure(client.recv(4096), "abstract socket")


@probe("net")
def socket_names() -> str:
    """Names of the host's sockets in /proc/net/unix and its ports in /proc/net/tcp."""
    if PLAN["abstract"] in read("/proc/net/unix", 1 << 20).decode(errors="replace"):
        raise Open("the host's unix sockets are listed")
    if f"0100007F:{PLAN['port']:04X}" in read("/proc/net/tcp", 1 << 20).decode():
        raise Open("the host's TCP sockets are listed")
    return "only the sandbox's own"


@probe("outside")
def path_socket() -> None:
    """A unix socket of the host that every user may connect to, by its path."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(PLAN["socket"])
        find_lure(client.recv(4096), "path socket")


@probe("outside", lacking=True)
def daemons() -> str:
    """Sockets of Docker, containerd, podman, systemd, D-Bus, X11, ssh and gpg agents, Nix, snap, and the GPU's daemons."""
    paths = ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
             "/run/crio/crio.sock", "/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify",
             "/run/systemd/journal/socket", "/tmp/.X11-unix/X0", "/run/user/0/bus", "/run/user/1000/bus",
             "/nix/var/nix/daemon-socket/socket",
             "/run/snapd.socket", "/dev/log", "/run/udev/control", "/run/nvidia-persistenced/socket", "/tmp/nvidia-mps/control",
             "/run/nvidia-fabricmanager/socket", "/run/user/1000/gnupg/S.gpg-agent", "/run/libvirt/libvirt-sock"]  # fmt: skip
    for path in paths:
        if os.path.lexists(path):
            raise Open(f"{path} is there")
        for name in (path, "\0" + path):
            with socket.socket(socket.AF_UNIX) as client:
                try:
                    client.connect(name)
                except OSError:
                    continue
                raise Open(f"{path} answers")
    return f"{len(paths)} paths"


@probe("outside")
def neighbour() -> str:
    """Files of a sandbox that runs at the same time, from its /tmp, HOME, /dev/shm and workspace, wherever they may show."""
    seen = 0
    for folder in ("/tmp", "/home/agent", "/dev/shm", "/workspace", "/var/tmp", *PLAN.get("neighbour_places", ())):
        for path in Path(folder).glob("*") if os.path.isdir(folder) else ():
            if path.is_file() and "neighbour" in path.name:
                find_lure(read(path), path)
                raise Open(f"{path} is there")
            seen += 1
    return f"{seen} names"


@probe()
def neighbours_socket() -> None:
    """An abstract socket that another sandbox listens on."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + PLAN["neighbour_socket"])
        raise Open("connected")


def plant() -> str:
    """Leave something in every place that a later sandbox might share."""
    for folder in ("/tmp", "/home/agent", "/dev/shm", "/workspace", "/var/tmp"):
        try:
            Path(folder, LEFTOVER).write_text("left")
        except OSError:
            continue
    call("shmget", PLAN["left_key"], 4096, 0o1666)
    return "planted"


@probe("outside")
def left_files() -> str:
    """Files that an earlier sandbox left in /tmp, HOME, /dev/shm, /var/tmp or the workspace."""
    found = [
        place for place in ("/tmp", "/home/agent", "/dev/shm", "/var/tmp", "/workspace") if os.path.exists(f"{place}/{LEFTOVER}")
    ]
    if found:
        raise Open(f"in {', '.join(found)}")
    return "none"


@probe("ipc")
def left_memory() -> None:
    """SysV shared memory that an earlier sandbox left: it outlives its creator."""
    raise Open(f"segment {call('shmget', PLAN['left_key'], 0, 0)}")


@probe(alone=True)
def fresh_folders() -> str:
    """/tmp, HOME, /dev/shm and /run hold nothing at the start."""
    names = [f"{folder}/{name}" for folder in ("/tmp", "/home/agent", "/dev/shm") for name in os.listdir(folder)]
    names += [f"/run/{name}" for name in os.listdir("/run") if name != "arena"]
    if names:
        raise Open(f"{names[:5]}")
    return "empty"


@probe()
def passed_descriptor() -> str:
    """A socket that the sandbox was given (the judge's): does another process in the sandbox hold it, or can one take it?"""
    if not PLAN.get("passed"):
        raise Untried("this sandbox was given none")
    child = os.fork()
    if child == 0:
        os.execv("/bin/sh", ["/bin/sh", "-c", f"test ! -e /proc/1/fd/{PLAN['passed']}"])
    _, status = os.waitpid(child, 0)
    if status:
        raise Open("process 1 shows it")
    return "process 1 does not show it"
