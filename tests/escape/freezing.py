"""Probes of freezing: processes that try to run unseen while their sandbox is frozen."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from arena.errors import SandboxError
from arena.sandboxes import RunningSandbox, SandboxSpec, bwrap
from escape.inside.common import Open

if TYPE_CHECKING:
    from escape.lures import Host

from escape.hosted import hosted

FROZEN_S = 0.2

COUNTER = """
import ctypes, fcntl, mmap, os, signal, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
area = mmap.mmap(int(sys.argv[1]), 4096)
def count(): area[:8] = struct.pack("Q", struct.unpack("Q", area[:8])[0] + 1)
def spin():
    while True: count()
def ready(): os.write(1, b"ready\\n")
def timer(number, seconds):
    event = struct.pack("=Qii", 0, number, 0) + bytes(48)
    made = ctypes.c_void_p()
    assert libc.timer_create(1, event, ctypes.byref(made)) == 0
    nanoseconds = int(seconds * 1e9)
    assert libc.timer_settime(made, 0, struct.pack("=4q", 0, nanoseconds, 0, nanoseconds), None) == 0
"""


def frozen(host: Host, text: str, during: Callable[[RunningSandbox], object] = lambda running: None) -> str:
    """Freeze a sandbox that runs this Python; Open when its counter grows and the CPU clocks do not show it."""
    with open(os.memfd_create("counter"), "r+b", buffering=0) as file:
        file.truncate(4096)
        with mmap.mmap(file.fileno(), 4096) as area:
            spec = SandboxSpec("worker", ("python", "-c", COUNTER + text, str(file.fileno())), pass_fds=(file.fileno(),))
            with bwrap.run(spec) as running:
                assert running.stdout.readline() == b"ready\n", running.stderr.read()
                time.sleep(0.02)
                try:
                    stopped = running.freeze()
                except SandboxError as error:
                    return f"refused: {str(error)[:60]}"
                before = area[:8]
                during(running)
                time.sleep(FROZEN_S)
                after, used = area[:8], running.cpu_ns()
                if after != before and used == stopped:
                    raise Open("it ran while frozen, and no clock shows it")
                running.resume()
    return "it did not run" if after == before else "it ran, and the CPU clocks show it"


@hosted("freeze", "worker")
def continued(host: Host) -> str:
    """Processes that continue each other all the time (SIGCONT by kill(-1))."""
    return frozen(
        host, "for _ in range(4):\n    if os.fork() == 0: break\nready()\nwhile True: os.kill(-1, signal.SIGCONT); count()"
    )


@hosted("freeze", "worker")
def kernel_timer(host: Host) -> str:
    """A timer of the kernel whose signal is SIGCONT -- our own finding; judge.md."""
    return frozen(host, "timer(signal.SIGCONT, 0.05)\nready()\nspin()")


@hosted("freeze", "worker")
def vfork(host: Host) -> str:
    """A child of vfork: its parent cannot be stopped and hides it."""
    return frozen(host, "if libc.syscall(ctypes.c_long(56), ctypes.c_long(0x4011), 0, 0, 0, 0) == 0: ready()\nspin()")


@hosted("freeze", "worker")
def fork_storm(host: Host) -> str:
    """Processes that fork without end: one of them has always not received the signal yet."""
    return frozen(
        host,
        "ready()\nfor _ in range(3): os.fork()\nwhile True:\n    if os.fork() == 0: count(); os._exit(0)\n    os.wait(); count()",
    )


@hosted("freeze", "worker")
def threads(host: Host) -> str:
    """Threads whose leader has ended: /proc shows a zombie that runs."""
    return frozen(host, "threading.Thread(target=spin).start()\nready()\nlibc.syscall(ctypes.c_long(60), 0)")


@hosted("freeze", "worker")
def orphaned_group(host: Host) -> str:
    """A stopped process group that becomes orphaned: the kernel itself continues it (POSIX)."""
    text = (
        "if os.fork() == 0:\n    os.setpgid(0, 0)\n    if os.fork() == 0:\n"
        "        signal.signal(signal.SIGHUP, signal.SIG_IGN); ready(); spin()\n"
        "    timer(signal.SIGKILL, 0.1)\n    time.sleep(60)\nwhile True: time.sleep(1)"
    )
    return frozen(host, text)


@hosted("freeze", "worker")
def descriptor_signal(host: Host) -> str:
    """SIGCONT as the signal of a pipe (F_SETSIG), sent when the host reads from it."""
    text = (
        "signal.signal(signal.SIGCONT, lambda *_: None)\nready()\nfcntl.fcntl(1, fcntl.F_SETOWN, os.getpid())\n"
        "fcntl.fcntl(1, 10, int(signal.SIGCONT))\nfcntl.fcntl(1, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)\n"
        "try:\n    while True: os.write(1, b'x' * 65536)\nexcept BlockingIOError: pass\nspin()"
    )
    return frozen(host, text, lambda running: os.read(running.stdout.fileno(), 1 << 16))


@hosted("freeze", "worker")
def death_signal(host: Host) -> str:
    """SIGCONT as the signal of a parent's death, whose own death is timed."""
    text = (
        "if os.fork() == 0:\n    if os.fork() == 0:\n"
        "        libc.prctl(1, int(signal.SIGCONT), 0, 0, 0)\n        ready(); spin()\n"
        "    timer(signal.SIGKILL, 0.1); time.sleep(60)\nwhile True: time.sleep(1)"
    )
    return frozen(host, text)


@hosted("freeze", "worker")
def alarms(host: Host) -> str:
    """Interval timers, and timers that signal a thread."""
    return frozen(
        host,
        "signal.signal(signal.SIGALRM, lambda *_: count())\nsignal.setitimer(signal.ITIMER_REAL, .001, .001)\nready()\nspin()",
    )


@hosted("freeze", "worker")
def flooded_init(host: Host) -> str:
    """A flood of signals to process 1, so that it cannot answer."""
    text = (
        "for _ in range(6):\n    if os.fork() == 0: break\nready()\n"
        "while True: os.kill(1, signal.SIGCHLD); os.kill(1, signal.SIGWINCH); count()"
    )
    return frozen(host, text)
