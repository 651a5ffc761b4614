"""Programs that tests run in a sandbox, and ways to run them and to find what they leave."""

import random
import time
from contextlib import contextmanager
from dataclasses import dataclass
from os import getpid
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from arena.sandboxes import SandboxSpec

ROOT = Path(__file__).parents[2]
FOUND_S = 5.0


class Result(NamedTuple):
    code: int | None
    out: str
    err: str


@dataclass(frozen=True)
class Backend:
    """A backend that works on this machine."""

    name: str
    module: ModuleType

    def run(self, spec, **options):
        return self.module.run(spec, **options)

    def finish(self, *command, secrets=(), **fields):
        """Run a sandbox to its end."""
        with self.run(SandboxSpec(**{"kind": "worker", "command": command, **fields}), secrets=secrets) as running:
            out, err = running.stdout.read().decode(), running.stderr.read().decode()
            return Result(running.wait(30), out, err)

    def shell(self, script, **fields):
        return self.finish("sh", "-c", script, **fields)

    def python(self, text, **fields):
        return self.finish("python", "-c", text, **fields)

    @contextmanager
    def ready(self, *command, **fields):
        """A sandbox whose command has printed its first line."""
        with self.run(SandboxSpec(**{"kind": "worker", "command": command, **fields})) as running:
            assert running.stdout.readline() == b"ready\n"
            yield running

    def leftovers(self):
        """Containers of the engine; bwrap keeps nothing of a sandbox."""
        if self.name == "bwrap":
            return []
        from arena.sandboxes.docker import engine

        with engine.connected() as found:
            return found.containers(all=True)


def token():
    """An argument for `sleep` that no other process of the machine has."""
    return f"{random.randrange(10**6, 10**7)}.{getpid()}"


def alive(mark):
    """Processes of this machine with this mark among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def until(count, mark):
    """Wait until so many processes with this mark exist."""
    deadline = time.monotonic() + FOUND_S
    while len(alive(mark)) != count:
        assert time.monotonic() < deadline, f"{len(alive(mark))} processes instead of {count}"
        time.sleep(0.01)


STUBBORN = (
    "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM; (sleep {0} &) ; sleep {0}' &) ; sleep {0} & echo ready; wait; sleep {0}"
)
"""A shell and a daemon that ignore signals; formatted with a token."""

SLOW_DEATH = """
import mmap, os, sys, time
held = os.memfd_create("x")
os.ftruncate(held, 256 << 20)
ready, started = os.pipe()
for _ in range(4):
    if os.fork() == 0:
        maps = [mmap.mmap(held, 256 << 20, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE) for _ in range(8)]
        os.write(started, b"x")
        time.sleep(60)
        os._exit(0)
for _ in range(4):
    os.read(ready, 1)
print("ready", flush=True)
time.sleep(float(sys.argv[1]))
"""
"""Processes with many page tables, which the kernel frees when they die: that takes a second. Ends after that many seconds."""

HOLD = (
    "import sys, time\n"
    "from arena.system import process\n"
    "from arena.sandboxes import SandboxSpec, {backend}, cgroup\n"
    "{before}\n"
    "with {backend}.run(SandboxSpec('worker', ('sh', '-c', sys.argv[1]))) as running:\n"
    "    running.stdout.readline(); print('up', flush=True); time.sleep(60)\n"
)
"""An arena that starts a sandbox, prints `up` when it runs, and waits."""

PROCESS_1 = """
import os
for name in ("environ", "mem", "maps", "auxv", "syscall"):
    try: open(f"/proc/1/{name}", "rb").read(1); print(name, "was read")
    except OSError as error: print(name, error.strerror)
for name in ("fd", "map_files", "cwd", "root"):
    try: print(name, os.listdir(f"/proc/1/{name}"))
    except OSError as error: print(name, error.strerror)
print(*sorted(name for name in os.listdir("/proc") if name.isdigit()))
"""

SYSCALLS = """
import ctypes, errno, os, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"
def call(x86, aarch, *args):
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(aarch if arm else x86), *map(ctypes.c_long, args))
    return errno.errorcode.get(ctypes.get_errno(), "done")
print("keyctl", call(250, 219, 0, -3, 1))
print("io_uring_setup", call(425, 425, 8, 0))
print("unshare", call(272, 97, 0x10000000))
print("clone3", call(435, 435, 0, 0))
print("ptrace", call(101, 117, 16, 1, 0, 0))
print("bpf", call(321, 280, 0, 0, 0))
print("prlimit of 1", call(302, 261, 1, 7, 0, 0))
print("setpriority of 1", call(141, 140, 0, 1, 19))
print("setpriority of self", call(141, 140, 0, 0, 19))
print("tiocsti", call(16, 29, 0, 0x5412, 0))
print("tiocsti high", call(16, 29, 0, 0x100005412, 0))
print("sched_setaffinity", call(203, 122, 0, 0, 0))
print("memfd_create", "done" if os.memfd_create("x") else "")
try: socket.socket(40)
except OSError as error: print("vsock", errno.errorcode[error.errno])
"""

FORKS = """
import os, time
made = 0
try:
    while made < 1000:
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        made += 1
except OSError as error:
    print(made, error.strerror, flush=True)
os._exit(0)
"""

SPIN = "sh -c 'while :; do :; done'"
BUSY = f"{SPIN} & {SPIN} & echo ready; {SPIN}"

# A process cannot run while it is stopped, but it can leave a timer that continues or kills it.
TIMER = """
import ctypes, os, signal, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def timer(number, seconds):
    event = struct.pack("=Qii", 0, number, 0) + bytes(48)   # struct sigevent, SIGEV_SIGNAL
    made = ctypes.c_void_p()
    assert libc.timer_create(1, event, ctypes.byref(made)) == 0
    arm(made, seconds)
    return made
def arm(made, seconds):
    whole, rest = int(seconds), int(seconds % 1 * 1e9)
    assert libc.timer_settime(made, 0, struct.pack("=4q", whole, rest, whole, rest), None) == 0
"""
CHEATS = {
    "spins when continued by its timer": "timer(signal.SIGCONT, 0.1)\nprint('ready', flush=True)\nwhile True: pass",
    "runs a moment when continued, then stops itself": (
        "def again(*_):\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "signal.signal(signal.SIGCONT, again)\ntimer(signal.SIGCONT, 0.1)\nprint('ready', flush=True)\nwhile True: time.sleep(1)"
    ),
    "vanishes": ("if os.fork() == 0:\n    timer(signal.SIGKILL, 0.2)\n    print('ready', flush=True)\nwhile True: time.sleep(1)"),
    "dies, so that the kernel continues the group it leaves orphaned": (
        "if os.fork() == 0:\n"
        "    os.setpgid(0, 0)\n"
        "    if os.fork() == 0:\n"
        "        signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "        while True: pass\n"
        "    timer(signal.SIGKILL, 0.2)\n    print('ready', flush=True)\n"
        "while True: time.sleep(1)"
    ),
}
AMID_A_CROWD = (
    TIMER
    + """
import threading
waiting, ready = os.pipe()
if os.fork():
    threading.stack_size(65536)
    for _ in range(300): threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
    os.write(1, b"ready\\n")
    os.write(ready, b"x")  # the other process prints after this line
    time.sleep(1e6)
os.read(waiting, 1)
signal.signal(signal.SIGCONT, lambda *_: None)
made = timer(signal.SIGCONT, 0.01)
while True:
    os.kill(os.getpid(), signal.SIGSTOP)
    arm(made, 0.01)  # a SIGSTOP that meets the SIGCONT cancels it, and with it the timer's next ones
    began = time.monotonic()
    while time.monotonic() < began + 0.001: pass
    os.write(1, b"%.6f %.6f\\n" % (began, time.monotonic()))
"""
)
INTO_THE_GROUP_OF_PROCESS_1 = """
import os, sys
for what in (lambda: os.setpgid(0, 1), lambda: os.setpriority(os.PRIO_PGRP, 0, 19), lambda: os.setpriority(os.PRIO_PGRP, 1, 19)):
    try:
        what()
    except PermissionError:
        print("refused")
print(os.getsid(0) == os.getpgid(0) == os.getpid(), os.getsid(1), os.getpriority(os.PRIO_PROCESS, 1), flush=True)
"""
