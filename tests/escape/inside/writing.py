"""Changing what must not change: the system, given files, mounts, kernel settings."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from .common import PLAN, Open, Untried, buffer, call, libc, probe, read, refused

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_MOVE = 1, 32, 4096, 16384, 8192


def mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, options: bytes | None = None) -> str:
    """mount(2); OSError."""
    ctypes.set_errno(0)
    if libc.mount(source, target, kind, ctypes.c_ulong(flags), options):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return f"mounted on {target.decode()}"


def touch(path: str) -> str:
    """Make a file; OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    return f"made {path}"


@probe("readonly")
def system() -> str:
    """New files and changed files in /usr, /etc, /opt, /lib and /run."""
    folders = (
        "/usr",
        "/usr/bin",
        "/usr/lib",
        "/etc",
        "/opt",
        "/opt/venv",
        "/opt/venv/bin",
        "/run",
        "/run/arena",
        "/lib",
        "/home",
    )
    tries: list[Any] = [lambda p=f"{folder}/new": touch(p) for folder in folders if os.path.isdir(folder)]
    files = ("/usr/bin/env", "/etc/passwd", "/etc/ld.so.cache", sys.executable)
    tries += [lambda p=path: os.open(p, os.O_WRONLY) for path in files if os.path.exists(path)]
    return refused(*tries)


@probe("outside", also=(errno.EBUSY,))
def given_file() -> str:
    """A file that the sandbox was given (`check.py`): written, cut, emptied, renamed, removed, replaced, made writable --
    KernelBench-Hard scores with the agent's own copy."""
    path = PLAN["given"]
    spare = f"/tmp/spare-{os.getpid()}"
    Path(spare).write_text("other")
    return refused(
        lambda: os.open(path, os.O_WRONLY | os.O_APPEND),
        lambda: os.truncate(path, 0),
        lambda: os.unlink(path),
        lambda: os.rename(path, f"{path}.old"),
        lambda: os.rename(spare, path),
        lambda: os.chmod(path, 0o777),
        lambda: os.utime(path),
        lambda: os.setxattr(path, "user.x", b"1"),
    )


@probe("outside")
def hard_link() -> str:
    """A second name in a writable folder for a file that is read-only here."""
    return refused(*(lambda f=folder: os.link(PLAN["given"], f"{f}/link-{os.getpid()}") for folder in PLAN["writable"]))


@probe("outside")
def given_folder() -> str:
    """The folder above a given file, moved away so that another can replace it."""
    folder = os.path.dirname(PLAN["given"])
    return refused(lambda: os.rename(folder, f"{folder}-old"), lambda: os.rmdir(folder))


@probe("capabilities")
def remount() -> str:
    """Remounting a read-only bind read-write, with mount(2)."""
    return refused(
        *(lambda t=target: mount(None, t, None, MS_REMOUNT | MS_BIND) for target in (b"/usr", b"/", b"/dev", b"/proc/sys"))
    )


@probe("capabilities")
def mount_attributes() -> str:
    """Clearing the read-only attribute with mount_setattr(2)."""
    attributes = struct.pack("4Q", 0, MS_RDONLY, 0, 0)
    return refused(
        *(
            lambda t=target: call("mount_setattr", -100, t, 0, buffer(32, attributes), 32) or "cleared"
            for target in (b"/usr", b"/")
        )
    )


@probe("capabilities")
def uncover() -> str:
    """Unmounting mounts that hide other files: /tmp, /home/agent, /workspace/check.py, /dev, /proc."""
    targets = ("/tmp", "/home/agent", "/dev/shm", "/workspace/check.py", "/workspace", "/etc/passwd", "/dev", "/proc")
    return refused(*(lambda t=target: call("umount2", t.encode(), 2) or f"unmounted {t}" for target in targets))


@probe("capabilities")
def new_mounts() -> str:
    """Mounts of its own: tmpfs, proc, bind and move with mount(2)."""
    return refused(
        lambda: mount(b"none", b"/tmp", b"tmpfs", 0),
        lambda: mount(b"proc", b"/tmp", b"proc", 0),
        lambda: mount(b"/usr", b"/tmp", None, MS_BIND | MS_REC),
        lambda: mount(b"/home/agent", b"/tmp", None, MS_MOVE),
        lambda: mount(b"overlay", b"/tmp", b"overlay", 0, b"lowerdir=/usr:/etc"),
    )


@probe("capabilities")
def new_mount_api() -> str:
    """Mounts of its own with fsopen, fsmount, open_tree and move_mount -- CVE-2022-0185."""
    return refused(
        lambda: call("fsopen", b"tmpfs", 0),
        lambda: call("fsopen", b"ext4", 0),
        lambda: call("open_tree", -100, b"/usr", 1),
        lambda: call("move_mount", -100, b"/usr", -100, b"/tmp", 0) or "moved",
    )


@probe("readonly")
def unbounded_memory() -> str:
    """New files at /, /dev, /etc, /opt, /home, /run: bubblewrap's own root is a tmpfs without a bound."""
    return refused(*(lambda f=folder: touch(f"{f}/x") for folder in ("", "/dev", "/etc", "/opt", "/home", "/run", "/run/arena")))


@probe("root")
def kernel_settings() -> str:
    """/proc/sys opened for writing (nothing is written): core_pattern, modprobe, settings of memory, network, namespaces, users.
    Those of its own namespaces (kernel/shmmax, msgmax, pid_max, ns_last_pid, fs/mqueue) belong to the sandbox -- open when the
    host's root is mapped in, our own finding."""
    names = ("kernel/core_pattern", "kernel/modprobe", "kernel/hotplug", "kernel/hostname", "kernel/sysrq", "kernel/panic",
             "kernel/randomize_va_space", "kernel/threads-max", "user/max_user_namespaces", "vm/overcommit_memory",
             "vm/drop_caches", "vm/panic_on_oom", "vm/nr_hugepages", "fs/binfmt_misc/register", "fs/suid_dumpable", "fs/file-max",
             "fs/protected_symlinks", "net/ipv4/ip_forward", "net/core/somaxconn", "fs/inotify/max_user_instances")  # fmt: skip
    found = []
    for name in names:
        try:
            os.close(os.open(f"/proc/sys/{name}", os.O_WRONLY))
            found.append(name)
        except OSError:
            continue
    if found:
        raise Open(f"{len(found)} can be opened for writing: {', '.join(found[:6])}")
    return f"{len(names)} settings"


@probe()
def other_proc_files() -> str:
    """/proc/sysrq-trigger, irq, acpi, mtrr, scsi, bus, fs, latency_stats, timer_stats opened for writing (nothing is written)."""
    names = ["sysrq-trigger", "irq/default_smp_affinity", "mtrr", "scsi/scsi", "acpi/wakeup", "latency_stats", "kmsg", "kcore",
             "dynamic_debug/control", "pressure/cpu", "pressure/memory", "driver/nvidia/registry"]  # fmt: skip
    found = []
    for name in names:
        if name.startswith("pressure/"):
            continue  # every user may write a trigger of its own there
        try:
            os.close(os.open(f"/proc/{name}", os.O_WRONLY))
            found.append(name)
        except OSError:
            continue
    if found:
        raise Open(f"can be opened for writing: {', '.join(found)}")
    return f"{len(names)} files"


@probe("outside")
def sys_folder() -> str:
    """/sys: devices, power, modules, hypervisor."""
    if os.path.isdir("/sys") and (names := os.listdir("/sys")):
        raise Open(f"it holds {', '.join(sorted(names)[:4])}")
    return "there is no /sys"


@probe("capabilities", lacking=True)
def control_groups() -> str:
    """Control group files (release_agent, cgroup.procs, memory.max), mounted or by a mount of its own -- CVE-2022-0492."""
    if found := [
        line.split()[1]
        for line in read("/proc/self/mounts", 1 << 20).decode().splitlines()
        if line.split()[2].startswith("cgroup")
    ]:
        raise Open(f"mounted on {found[0]}")
    return refused(lambda: mount(b"none", b"/tmp", b"cgroup2", 0), lambda: mount(b"none", b"/tmp", b"cgroup", 0, b"none,name=x"))


@probe("capabilities", lacking=True)
def tracing() -> str:
    """debugfs, tracefs, securityfs, configfs, bpffs, binfmt_misc, efivarfs, fuse and disks mounted."""
    kinds = (
        b"debugfs",
        b"tracefs",
        b"securityfs",
        b"configfs",
        b"bpf",
        b"binfmt_misc",
        b"efivarfs",
        b"pstore",
        b"fuse",
        b"devtmpfs",
    )
    disks = [lambda d=disk: mount(d, b"/tmp", b"ext4", MS_RDONLY) for disk in (b"/dev/vda", b"/dev/sda1", b"/dev/nvme0n1p1")]
    return refused(*(lambda k=kind: mount(b"none", b"/tmp", k, 0) for kind in kinds), *disks)


@probe("shadowed")
def shadowed_modules() -> str:
    """sitecustomize, usercustomize and a `json.py` in the workspace or HOME, imported when process 1 starts Python."""
    where = PLAN["writable"][0]
    for name in ("sitecustomize", "usercustomize", "json", "marshal"):
        Path(where, f"{name}.py").write_text("print('HIJACK')\n")
    site = Path(where, f".local/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages")
    site.mkdir(parents=True, exist_ok=True)
    (site / "usercustomize.py").write_text("print('HIJACK')\n")
    plain = [] if PLAN["variant"] == "shadowed" else ["-I", "-S"]
    done = subprocess.run(
        [sys.executable, *plain, "-c", "import json"],
        cwd=where, env={"HOME": where, "PYTHONPATH": where}, capture_output=True, text=True,
    )  # fmt: skip
    for name in ("sitecustomize", "usercustomize", "json", "marshal"):
        Path(where, f"{name}.py").unlink()
    if "HIJACK" in done.stdout:
        raise Open("imported")
    return "`python -I -S` imports none of them"


@probe("readonly", lacking=True)
def loader_files() -> str:
    """/etc/ld.so.preload, ld.so.conf.d, and the loader's cache: code in every later process."""
    if os.path.exists("/etc/ld.so.preload"):
        raise Untried("the host has one")
    tries = [lambda: touch("/etc/ld.so.preload"), lambda: os.open("/etc/ld.so.cache", os.O_WRONLY)]
    if os.path.isdir("/etc/ld.so.conf.d"):
        tries.append(lambda: touch("/etc/ld.so.conf.d/x.conf"))
    return refused(*tries)
