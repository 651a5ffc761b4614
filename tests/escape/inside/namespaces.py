"""Namespaces: creating new ones inside, and entering others."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
from typing import Any

from .common import Open, buffer, call, pids, probe, refused

CLONE_FLAGS = {"user": 0x10000000, "mount": 0x00020000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x08000000,
               "uts": 0x04000000, "cgroup": 0x02000000, "time": 0x80}  # fmt: skip
SIGCHLD = 17


@probe()
def identity_maps() -> str:
    """Writing its own uid_map, gid_map, setgroups, projid_map and the offsets of a time namespace."""
    return refused(
        *(
            lambda n=name, t=text: os.write(os.open(f"/proc/self/{n}", os.O_WRONLY), t)
            for name, text in (
                ("uid_map", b"0 0 4294967295"),
                ("gid_map", b"0 0 4294967295"),
                ("projid_map", b"0 0 4294967295"),
                ("setgroups", b"allow"),
                ("timens_offsets", b"monotonic 9 0"),
            )
        )
    )


@probe("filter")
def unshare_user() -> None:
    """unshare(CLONE_NEWUSER): the widest attack surface of the kernel for an unprivileged user -- CVE-2022-0185 and others."""
    call("unshare", CLONE_FLAGS["user"])
    raise Open("a user namespace")


@probe("filter")
def clone_user() -> None:
    """clone(CLONE_NEWUSER)."""
    child = call("clone", CLONE_FLAGS["user"] | SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    raise Open("a user namespace")


@probe("filter")
def clone3_user() -> None:
    """clone3(CLONE_NEWUSER), whose flags no filter can read."""
    child = call("clone3", buffer(64, struct.pack("8Q", CLONE_FLAGS["user"], 0, 0, 0, SIGCHLD, 0, 0, 0)), 64)
    if child == 0:
        os._exit(0)
    raise Open("a user namespace")


@probe("filter")
def clone3_at_all() -> str:
    """clone3 with other flags: into a control group, with a chosen pid, with a pidfd."""
    child = call("clone3", buffer(88, struct.pack("11Q", 0, 0, 0, 0, SIGCHLD, 0, 0, 0, 0, 0, 0)), 88)
    if child == 0:
        os._exit(0)
    raise Open("clone3 works, whatever its flags")


@probe("capabilities")
def unshare_the_rest() -> str:
    """unshare and clone of every other namespace, time among them."""
    return refused(*(lambda f=flag: call("unshare", f) or "made" for name, flag in CLONE_FLAGS.items() if name != "user"))


@probe("filter")
def nested_tools() -> str:
    """`unshare -Ur` and bubblewrap inside the sandbox."""
    commands = (("unshare", "-Ur", "true"), ("bwrap", "--ro-bind", "/", "/", "true"))
    there = [words for words in commands if shutil.which(words[0])]
    for words in there:
        if subprocess.run(words, capture_output=True).returncode == 0:
            raise Open(" ".join(words))
    return f"{', '.join(words[0] for words in there) or 'neither is there'}: refused"


@probe("capabilities", also=(errno.EINVAL,))  # its own user namespace
def enter_namespaces() -> str:
    """setns into the namespaces of every visible process, by file and by pidfd."""
    tries: list[Any] = []
    for pid in {"1", str(os.getppid()), *pids()}:
        for kind in ("user", "mnt", "net", "pid", "ipc", "uts", "cgroup", "time"):
            tries.append(
                lambda p=pid, k=kind: call("setns", os.open(f"/proc/{p}/ns/{k}", os.O_RDONLY), 0) or f"entered {p}'s {k}"
            )
        tries.append(lambda p=pid: call("setns", os.pidfd_open(int(p)), 0x20000) or f"entered {p}'s mounts")
    return refused(*tries)


@probe()
def parent_namespaces() -> str:
    """ioctl NS_GET_PARENT and NS_GET_USERNS on its own namespaces: a descriptor of the host's."""
    tries = []
    for kind in ("user", "pid"):
        fd = os.open(f"/proc/self/ns/{kind}", os.O_RDONLY)
        tries.append(lambda f=fd: call("ioctl", f, 0xB702) or f"parent {f}")
        if kind == "user":
            tries.append(lambda f=fd: call("ioctl", f, 0xB701) or f"owner {f}")
    return refused(*tries)


@probe("capabilities")
def change_root() -> str:
    """chroot and pivot_root."""
    return refused(lambda: call("chroot", b"/tmp") or "chroot", lambda: call("pivot_root", b"/tmp", b"/tmp") or "pivot_root")
