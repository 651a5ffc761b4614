"""The sandbox init (process 1): it has the same user as the command, and must answer the judge."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import struct
import time
from pathlib import Path

from .common import PLAN, Open, buffer, call, find_lure, lure, probe, read, refused
from .processes import memory as memory_of

PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
SECONDS_TO_SETTLE = 0.15


@probe("filter")
def environ() -> None:
    """The environment of process 1; bubblewrap's own process 1 keeps its launcher's there."""
    find_lure(read("/proc/1/environ", 1 << 20), "/proc/1/environ")


@probe("filter")
def arguments() -> str:
    """Host paths in the arguments of process 1."""
    data = read("/proc/1/cmdline", 1 << 20)
    for word in PLAN["path_words"]:
        if word.encode() in data:
            raise Open(f"they name the folder {word}")
    return f"{data.count(bytes(1))} words, no host path"


@probe("filter")
def memory() -> str:
    """Secrets in the memory of process 1, through /proc/1/mem -- our own finding: no filter on ptrace stops it."""
    return f"{memory_of('1', lure())} bytes read, no lure in them"


@probe("filter")
def memory_written() -> None:
    """/proc/1/mem opened for writing: a process that writes process 1 can answer the judge in its place."""
    os.close(os.open("/proc/1/mem", os.O_RDWR))
    raise Open("it can be written")


@probe("filter")
def descriptors() -> None:
    """The descriptors of process 1 (its socket to arena), through /proc/1/fd."""
    names = os.listdir("/proc/1/fd")
    raise Open(f"listed: {names[:5]}")


@probe("filter")
def links() -> str:
    """/proc/1/exe, cwd, root, maps, map_files, auxv, stack, syscall, io and personality."""
    found = []
    for name in ("maps", "auxv", "stack", "syscall", "io", "personality", "smaps", "pagemap", "numa_maps"):
        try:
            found += [name] if read(f"/proc/1/{name}", 16) else []
        except OSError:
            continue
    for name in ("exe", "cwd", "root", "ns/mnt"):
        try:
            os.readlink(f"/proc/1/{name}")
            found.append(name)
        except OSError:
            continue
    if found:
        raise Open(f"read: {', '.join(found)}")
    return "none can be read"


@probe("filter")
def settings() -> str:
    """/proc/1/{oom_score_adj,comm,coredump_filter,timerslack_ns,clear_refs,sched,autogroup} written."""
    values = {"oom_score_adj": "1000", "comm": "x", "coredump_filter": "0", "clear_refs": "1", "sched": "0", "autogroup": "0",
              "timerslack_ns": "50001", "uid_map": "0 0 1", "loginuid": "0"}  # fmt: skip
    found = []
    for name, value in values.items():
        try:
            fd = os.open(f"/proc/1/{name}", os.O_WRONLY)
            os.write(fd, value.encode())
            found.append(name)
        except OSError:
            continue
    if found:
        raise Open(f"written: {', '.join(found)}")
    return f"{len(values)} files"


@probe("filter", lacking=True)
def traced() -> str:
    """ptrace: attach to and seize process 1."""
    return refused(lambda: call("ptrace", PTRACE_SEIZE, 1, 0, 0), lambda: call("ptrace", PTRACE_ATTACH, 1, 0, 0))


@probe("filter", lacking=True)
def read_by_address() -> None:
    """process_vm_readv of process 1, at an address that is surely mapped there."""
    try:
        with open("/proc/1/maps", encoding="utf-8") as maps:
            address = int(maps.readline().split("-")[0], 16)
    except OSError:
        address = 0x400000
    target = buffer(64)
    local, remote = buffer(16, struct.pack("QQ", ctypes.addressof(target), 64)), buffer(16, struct.pack("QQ", address, 64))
    raise Open(f"{call('process_vm_readv', 1, local, 1, remote, 1, 0)} bytes")


@probe("filter", lacking=True)
def descriptor_taken() -> None:
    """pidfd_getfd: a copy of a descriptor of process 1."""
    raise Open(f"descriptor {call('pidfd_getfd', os.pidfd_open(1), 0, 0)}")


@probe("filter", lacking=True)
def compared() -> None:
    """kcmp with process 1: kernel addresses by comparison."""
    raise Open(f"answer {call('kcmp', 1, os.getpid(), 2, 0, 0)}")


@probe("filter")
def limits() -> None:
    """prlimit of process 1: no descriptors, no memory, no answer to the judge."""
    call("prlimit64", 1, int(resource.RLIMIT_NOFILE), 0, buffer(16))
    call("prlimit64", 1, int(resource.RLIMIT_CPU), buffer(16, struct.pack("QQ", 1 << 40, 1 << 40)), 0)
    raise Open("its limits can be set")


@probe("filter")
def priority() -> str:
    """A lower priority, another scheduler or another processor for process 1, by pid and by user."""
    uid = os.getuid()
    return refused(
        lambda: os.setpriority(os.PRIO_PROCESS, 1, 1),
        lambda: os.setpriority(os.PRIO_USER, uid, 1),
        lambda: os.setpriority(os.PRIO_USER, 0, 1),
        lambda: os.sched_setscheduler(1, os.SCHED_BATCH, os.sched_param(0)),
        lambda: call("sched_setattr", 1, buffer(56, struct.pack("IIQiI", 56, 3, 0, 5, 0)), 0),
        lambda: os.sched_setaffinity(1, os.sched_getaffinity(0)),
    )


@probe("filter")
def group() -> str:
    """Joining the process group of process 1, and a lower priority for the whole group -- our own finding: at nice 19 it answered
    no freeze in time."""
    before = os.getpriority(os.PRIO_PROCESS, 1)
    actions = (
        lambda: os.setpriority(os.PRIO_PGRP, 1, before + 1),
        lambda: os.setpgid(0, 1),
        lambda: os.setpriority(os.PRIO_PGRP, 0, before + 1),
        lambda: call("setpriority", 1 << 32 | os.PRIO_PGRP, 0, before + 1),
    )
    refusals = refused(*actions)
    if os.getpriority(os.PRIO_PROCESS, 1) != before or os.getpgid(1) == os.getpgid(0):
        raise Open("the command can change process 1's priority")
    return refusals


@probe("filter")
def session() -> str:
    """The session of process 1 shared: the command would then share its autogroup, whose priority any member may write."""
    if os.getsid(1) == os.getsid(0):
        raise Open("process 1 is in the command's session")
    ours, theirs = (Path(f"/proc/{pid}/autogroup") for pid in ("self", "1"))
    if ours.exists() and ours.read_text().split()[0] == theirs.read_text().split()[0]:
        raise Open("process 1 is in the command's autogroup")
    return "another session"


@probe("filter")
def io_priority() -> str:
    """ioprio_set on process 1, by pid, by group and by user."""
    idle = 3 << 13
    uid = os.getuid()
    return refused(*(lambda kind=kind, who=who: call("ioprio_set", kind, who, idle) for kind, who in ((1, 1), (2, 1), (3, uid))))


@probe("filter", lacking=True, also=(errno.EINVAL,))
def pages() -> str:
    """migrate_pages, move_pages, process_madvise and process_mrelease on process 1."""
    nodes, status = buffer(8, struct.pack("Q", 1)), buffer(8)
    fd = os.pidfd_open(1)
    return refused(
        lambda: call("migrate_pages", 1, 64, nodes, nodes),
        lambda: call("move_pages", 1, 1, buffer(8, struct.pack("Q", 0x400000)), 0, status, 2),
        lambda: call("process_madvise", fd, buffer(16, struct.pack("QQ", 0x400000, 4096)), 1, 20, 0),
        lambda: call("process_mrelease", fd, 0),
    )


@probe("pid")
def signalled() -> str:
    """Every signal but SIGTERM and SIGCHLD to process 1, by kill and as the signal of a descriptor that it is made the owner
    of -- our own finding: Python's handler of SIGINT ended it, and the sandbox."""
    if PLAN["variant"] == "pid":  # without a pid namespace process 1 is the host's: 0 asks and does nothing
        os.kill(PLAN["host_pids"][-1], 0)
        raise Open("a process of the host takes signals")
    for number in set(signal.Signals) - {signal.SIGTERM, signal.SIGCHLD}:  # process 1 forwards the first and reaps on the second
        os.kill(1, number)
        reading, writing = os.pipe()
        fcntl.fcntl(reading, fcntl.F_SETOWN, 1)
        fcntl.fcntl(reading, 10, int(number))  # F_SETSIG
        fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        os.write(writing, b"x")
    time.sleep(SECONDS_TO_SETTLE)
    state = read("/proc/1/stat").rsplit(b")", 1)[1].split()[0].decode()
    if state not in "SR":
        raise Open(f"process 1 is in state {state}")
    return f"process 1 is in state {state}"
