"""Gaining privileges: capabilities, users, setuid programs, priorities."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import subprocess
from pathlib import Path

from .common import Open, Untried, buffer, call, libc, probe, read, refused

CLONE_FLAGS = {"user": 0x10000000, "mount": 0x00020000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x08000000,
               "uts": 0x04000000, "cgroup": 0x02000000, "time": 0x80}  # fmt: skip
SIGCHLD = 17


def prctl(option: int, *arguments: int) -> int:
    """prctl(2); OSError."""
    words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
    ctypes.set_errno(0)
    answer = libc.prctl(option, *words)
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(answer)


def status() -> dict[str, str]:
    """Fields of /proc/self/status."""
    return dict(line.split(":\t", 1) for line in read("/proc/self/status").decode().splitlines() if ":\t" in line)


@probe("capabilities")
def capabilities() -> str:
    """Any capability in any of the five sets -- docs/sandbox.md: bubblewrap started by root keeps them all without --cap-drop."""
    found = {name: value for name, value in status().items() if name.startswith("Cap") and int(value, 16)}
    if found:
        raise Open(f"sets: {found}")
    return "all five sets empty"


@probe("capabilities")
def raised() -> str:
    """Capabilities raised into the ambient set, into the effective set, and kept over a change of user."""
    header, sets = buffer(8, struct.pack("Ii", 0x20080522, 0)), buffer(24, struct.pack("6I", 1 << 21, 1 << 21, 0, 0, 0, 0))
    return refused(
        lambda: call("capset", header, sets),
        lambda: prctl(47, 2, 21) or "ambient CAP_SYS_ADMIN",
        lambda: prctl(28, 0x2F) or "securebits",
    )


@probe("capabilities", also=(errno.EINVAL,))  # a user that has no number in the sandbox
def another_user() -> str:
    """setuid(0), setgid(0), setgroups and similar calls."""
    return refused(
        lambda: os.setresuid(0, 0, 0),
        lambda: os.setresgid(0, 0, 0),
        lambda: os.setgroups([0]),
        lambda: os.setresuid(1, 1, 1),
        lambda: os.setresgid(1, 1, 1),
    )


@probe("outside", also=(errno.EINVAL,))
def no_new_privileges() -> str:
    """The bit that makes every setuid program harmless: is it set, and can it be cleared?."""
    if prctl(39) != 1:
        raise Open("it is not set")
    return refused(lambda: prctl(38, 0))


@probe("outside")
def setuid_programs() -> str:
    """Every setuid and setgid program within reach, run: does its user change?"""
    found = []
    for folder in ("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec", "/opt"):
        for path in Path(folder).glob("*"):
            if path.is_file() and not path.is_symlink() and path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID):
                found.append(str(path))
    for program in found[:6]:
        if program.rsplit("/", 1)[-1] not in (
            "su",
            "mount",
            "umount",
            "newgrp",
            "gpasswd",
            "chsh",
            "chfn",
            "passwd",
            "sudo",
            "pkexec",
        ):
            continue
        child = subprocess.Popen(
            [program, "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            if "Uid:\t0" in read(f"/proc/{child.pid}/status").decode():
                raise Open(f"{program} runs as root")
        except FileNotFoundError:
            continue
        finally:
            child.wait()
    if prctl(39) != 1:
        raise Open("no_new_privs is off")
    return f"{len(found)} such programs, none gains anything"


@probe("capabilities", lacking=True)
def file_capability() -> str:
    """A capability written onto a file of its own."""
    value = struct.pack("<IIIII", 0x02000001, 1 << 21, 0, 0, 0)
    answers = []
    for folder in ("/tmp", "/dev/shm", "/workspace"):
        path = Path(folder, f"cap-{os.getpid()}")
        try:
            path.write_bytes(b"")
            os.setxattr(path, "security.capability", value)
            path.unlink()
        except OSError as error:
            answers.append(f"{folder}: {error.strerror}")
            path.unlink(missing_ok=True) if path.exists() else None
            continue
        raise Open(f"written in {folder}")
    return ", ".join(answers)


@probe(also=(errno.EINVAL,))
def setuid_file() -> str:
    """A setuid-root file made by changing the owner of its own file."""
    path = Path("/tmp", f"suid-{os.getpid()}")
    path.write_bytes(b"")
    path.chmod(0o6755)
    return refused(lambda: os.chown(path, 0, 0), lambda: os.chown(path, -1, 0))


@probe()
def device_nodes() -> str:
    """Device nodes made in every writable folder: the disk, /dev/mem, a terminal."""
    tries = []
    for folder in ("/tmp", "/dev/shm", "/home/agent", "/workspace"):
        for kind, major, minor in ((stat.S_IFBLK, 254, 0), (stat.S_IFBLK, 8, 0), (stat.S_IFCHR, 1, 1), (stat.S_IFCHR, 5, 1)):
            path = f"{folder}/node-{major}-{minor}"
            tries.append(lambda p=path, k=kind, d=(major, minor): os.mknod(p, k | 0o666, os.makedev(*d)))
    return refused(*tries)


@probe("filter")
def clock() -> str:
    """Setting the machine's clock (with a time that no clock can have: reaching the check is enough)."""
    wrong = buffer(16, struct.pack("qq", 0, 2_000_000_000))
    for name, words in (("clock_settime", (0, wrong)), ("settimeofday", (wrong, 0)), ("adjtimex", (buffer(208),))):
        try:
            call(name, *words)
        except OSError as error:
            if error.errno == errno.EPERM:
                continue
        raise Open(f"{name} reached the kernel's clock")
    return "refused before the clock is reached"


@probe("capabilities")
def names() -> str:
    """sethostname and setdomainname."""
    return refused(lambda: call("sethostname", b"x", 1) or "set", lambda: call("setdomainname", b"x", 1) or "set")


@probe()
def better_treatment() -> str:
    """A negative nice value, real-time scheduling, real-time i/o, and a deadline: starving the judge."""
    return refused(
        lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
        lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10)),
        lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)),
        lambda: call("sched_setattr", 0, buffer(56, struct.pack("IIQiIQQQ", 48, 6, 0, 0, 0, 10**6, 10**7, 10**7)), 0),
        lambda: call("ioprio_set", 1, 0, (1 << 13) | 0) or "real-time i/o",
    )


@probe()
def out_of_memory() -> str:
    """A score that protects the sandbox from the kernel's out-of-memory killer, which then ends another process."""
    for value in (b"-1000", b"-1"):
        try:
            fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
            os.write(fd, value)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM):
                raise
            continue
        raise Open(f"{value.decode()} was accepted")
    return f"refused; it is {read('/proc/self/oom_score_adj').decode().strip()}"


@probe()
def higher_limits() -> str:
    """Raising the hard limits that the sandbox was given."""
    import resource

    tries = []
    for which in ("NOFILE", "FSIZE", "CORE", "NPROC", "MEMLOCK", "RTPRIO", "NICE", "SIGPENDING", "MSGQUEUE"):
        number = getattr(resource, f"RLIMIT_{which}", {"RTPRIO": 14, "NICE": 13, "SIGPENDING": 11, "MSGQUEUE": 12}.get(which))
        if number is None:
            raise Untried(which)
        hard = resource.getrlimit(number)[1]
        if hard != resource.RLIM_INFINITY:
            tries.append(lambda n=number, h=hard: resource.setrlimit(n, (h, h + 1)))
    try:
        return refused(*tries)
    except ValueError as error:  # Python's exception for EPERM here
        return str(error)
