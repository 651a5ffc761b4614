"""Other processes: the host's, the judge's, the neighbour's, and its own children."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import struct
import time

from .common import PLAN, Open, Untried, buffer, call, find_lure, libc, lure, pids, probe, read, readable

PTRACE_TRACEME = 0
SECONDS_TO_SETTLE = 0.15


def memory(pid: str, needle: bytes) -> int:
    """Scan all readable memory of a process for the needle; the number of bytes read. Open when it is there, else OSError."""
    count = 0
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for line in maps:
            words = line.split()
            start, end = (int(word, 16) for word in words[0].split("-"))
            if "r" not in words[1] or end - start > 1 << 28 or words[-1] in ("[vvar]", "[vsyscall]"):
                continue
            try:
                mem.seek(start)
                data = mem.read(end - start)
            except (OSError, ValueError, OverflowError):
                continue
            count += len(data)
            if needle in data:
                find_lure(data, f"memory of process {pid}")
    return count


@probe("pid")
def host_processes() -> str:
    """Processes of the host in /proc."""
    for path, data in readable([f"/proc/{pid}/cmdline" for pid in pids()]):
        if PLAN["mark"].encode() in data:
            raise Open(f"{path} is a process of the host")
    return f"{len(pids())} processes, all of the sandbox"


@probe("outside", lacking=True)
def environ_of_others() -> str:
    """A key in the environment of any other process: of arena, of a CLI, of a neighbour."""
    own = (str(os.getpid()), str(os.getppid()))
    for path, data in readable([f"/proc/{pid}/environ" for pid in pids() if pid not in own]):
        find_lure(data, path)
    return f"{len(pids())} processes"


@probe("outside")
def own_environment() -> str:
    """A key of arena's environment in this process's own."""
    find_lure(read("/proc/self/environ", 1 << 20), "own environment")
    find_lure("\0".join(os.environ.values()).encode(), "os.environ")
    return f"variables: {', '.join(sorted(os.environ))}"


@probe("outside", lacking=True)
def memory_of_the_judge() -> str:
    """The memory of arena (the judge's secrets) and of another process of the host by their pids, through /proc and
    process_vm_readv."""
    for pid in PLAN["host_pids"]:
        try:
            memory(str(pid), lure())
            target = buffer(64)
            local = buffer(16, struct.pack("QQ", ctypes.addressof(target), 64))
            remote = buffer(16, struct.pack("QQ", 0x400000, 64))
            call("process_vm_readv", pid, local, 1, remote, 1, 0)
        except OSError:
            continue
        raise Open(f"process {pid} was read")
    return f"{len(PLAN['host_pids'])} processes of the host"


@probe("outside")
def signal_to_the_host() -> str:
    """kill(2), pidfd_open and pidfd_send_signal by host pids (signal 0 only)."""
    for pid in PLAN["host_pids"]:
        try:
            os.kill(pid, 0)
            signal.pidfd_send_signal(os.pidfd_open(pid), 0)
        except OSError:
            continue
        raise Open(f"process {pid} of the host can be signalled")
    return f"{len(PLAN['host_pids'])} processes of the host"


@probe("pid", alone=True)
def kill_everybody() -> str:
    """kill(-1, SIGKILL); the host checks whether its process lives -- KernelBench-Hard's log: `pkill -f python`."""
    report = {"probe": "processes.kill_everybody", "state": "held", "detail": "it ended its own sandbox"}
    os.write(1, json.dumps(report).encode() + b"\n")  # afterwards no process is left to report
    os.kill(-1, signal.SIGKILL)
    return "ended the sandbox itself"


@probe("pid", alone=True)
def daemon() -> str:
    """A process that forks twice, leaves its session, closes everything, ignores every signal and clears its death signal;
    the host searches for it when the sandbox has ended."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            libc.prctl(1, 0, 0, 0, 0)
            for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_IGN)
            os.execv("/bin/sh", ["/bin/sh", "-c", 'exec <&- >&- 2>&-; exec sleep "$1"', "sh", PLAN["daemon"]])
        os._exit(0)
    time.sleep(SECONDS_TO_SETTLE)
    return "left behind"


@probe("filter")
def debugger() -> None:
    """ptrace at all: a process that lets its parent trace it."""
    if not hasattr(os, "fork"):
        raise Untried("no fork")
    call("ptrace", PTRACE_TRACEME, 0, 0, 0)
    raise Open("traced")


@probe("outside", lacking=True)
def core_dump() -> str:
    """A core dump, which a handler of the host (core_pattern with a pipe) would read as root -- CVE-2015-1318, CVE-2025-4598."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    child = os.fork()
    if child == 0:
        os.chdir(PLAN["writable"][0])
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(1)
    _, status = os.waitpid(child, 0)
    if os.WCOREDUMP(status):
        raise Open("the kernel dumped core")
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    if PLAN["variant"] == "full" and resource.getrlimit(resource.RLIMIT_CORE)[0] == 0 != hard:
        raise Open("the limit that keeps a handler of the host away can be set to another value")
    return f"no core; the limit stays at {resource.getrlimit(resource.RLIMIT_CORE)[0]} byte"
