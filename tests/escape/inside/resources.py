"""Using more than the sandbox's share."""

from __future__ import annotations

import errno
import os
import resource
import threading
import time
from pathlib import Path
from typing import NoReturn

from .common import PLAN, Open, Untried, buffer, call, fail, libc, probe, refused

MIB = 1 << 20
PIECE_BYTES = 16 * MIB
WATCHED_S = 3.0
PR_SET_DUMPABLE = 4


def fill(folder: str, bound_bytes: int) -> str:
    """Write until the kernel refuses; Open when that is far beyond the bound."""
    path = Path(folder, f"fill-{os.getpid()}")
    written, piece = 0, bytes(MIB)
    try:
        with path.open("wb", buffering=0) as file:
            while written <= bound_bytes + 8 * MIB:
                written += file.write(piece)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return f"{error.strerror} after {written // MIB} MiB of {bound_bytes // MIB}"
    finally:
        path.unlink(missing_ok=True)
    raise Open(f"{written // MIB} MiB written, {bound_bytes // MIB} allowed")


@probe("outside")
def temporary_files() -> str:
    """/tmp filled beyond its size."""
    return fill("/tmp", PLAN["tmp_bytes"])


@probe("outside", lacking=True)
def shared_memory_files() -> str:
    """/dev/shm filled beyond its size."""
    return fill("/dev/shm", PLAN["shm_bytes"])


@probe()
def home_files() -> str:
    """HOME filled beyond its size."""
    return fill("/home/agent", PLAN["home_bytes"])


@probe("outside", lacking=True, also=(errno.EFBIG,))
def one_large_file() -> str:
    """A file larger than RLIMIT_FSIZE, written at once and made sparse."""
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if hard == resource.RLIM_INFINITY:
        raise Open("no limit")
    with open(f"/tmp/sparse-{os.getpid()}", "wb") as file:
        return refused(lambda: os.ftruncate(file.fileno(), hard + 1), lambda: os.pwrite(file.fileno(), b"x", hard + 1))


@probe("outside", lacking=True)
def descriptors() -> str:
    """The table of open files, filled."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard > 1 << 16:
        raise Open(f"{hard} descriptors allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    opened = 0
    try:
        while opened <= hard:
            os.open("/dev/null", os.O_RDONLY)
            opened += 1
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        return f"{error.strerror} at {opened}"
    raise Open(f"{opened} opened")


@probe("unlimited", lacking=True, alone=True)
def processes() -> str:
    """Processes without end."""
    if PLAN["process_limit"] is None:
        raise Untried("no limit on processes is in force here")
    children: list[int] = []
    try:
        while len(children) < PLAN["process_limit"] + 64:
            # A small program: forks of this one would meet the limit on memory first.
            children.append(os.posix_spawn("/bin/sleep", ["sleep", "30"], {}))
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
        return f"{error.strerror} after {len(children)} of {PLAN['process_limit']}"
    finally:
        for child in children:
            os.kill(child, 9)
    raise Open(f"{len(children)} made, {PLAN['process_limit']} allowed")


@probe("unlimited", lacking=True, alone=True)
def threads() -> str:
    """Threads without end."""
    if PLAN["process_limit"] is None:
        raise Untried("no limit on processes is in force here")
    started, done = 0, threading.Event()
    threading.stack_size(1 << 16)
    try:
        while started < PLAN["process_limit"] + 64:
            threading.Thread(target=done.wait, daemon=True).start()
            started += 1
    except RuntimeError as error:
        return f"{error} after {started} of {PLAN['process_limit']}"
    finally:
        done.set()
    raise Open(f"{started} started, {PLAN['process_limit']} allowed")


def memfds() -> tuple[list[int], int]:
    """Files that hold 1.5 times the memory the sandbox may use, each well below the limit on a file; and their total size."""
    bound = PLAN["memory_bytes"]
    if bound is None:
        raise Untried("no limit on memory is in force here")
    fds = [os.memfd_create(f"m{n}") for n in range(3 * bound // 2 // PIECE_BYTES)]
    piece = bytes(PIECE_BYTES)
    for fd in fds:
        if os.write(fd, piece) != PIECE_BYTES:
            raise RuntimeError("the kernel wrote only a part")
    return fds, len(fds) * PIECE_BYTES


def wait_for_watchdog(held_bytes: int) -> NoReturn:
    """Raise Open, after the time that the watchdog needs to see it."""
    if PLAN["variant"] == "full":
        time.sleep(WATCHED_S)
    raise Open(f"{held_bytes // MIB} MiB held, {PLAN['memory_bytes'] // MIB} allowed")


@probe("unlimited", alone=True, limit="memory")
def memory() -> str:
    """Memory that no process maps (many memfds), beyond the sandbox's bound."""
    _, held_bytes = memfds()
    wait_for_watchdog(held_bytes)


@probe("unlimited", alone=True, limit="memory")
def memory_out_of_sight() -> str:
    """The same in a process whose descriptors only the host's root may list (PR_SET_DUMPABLE)."""
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    _, held_bytes = memfds()
    wait_for_watchdog(held_bytes)


@probe("filter")
def processors() -> str:
    """sched_setaffinity beyond the processors that the sandbox was given."""
    if not PLAN["pinned"]:
        raise Untried("this sandbox was given no processors of its own")
    return refused(lambda: os.sched_setaffinity(0, range(os.cpu_count() or 1)))


@probe()
def locked_memory() -> str:
    """mlock and huge pages beyond the limit."""
    import mmap

    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if hard == resource.RLIM_INFINITY:
        raise Untried("the host sets no limit on locked memory")
    wanted = hard + MIB
    area = mmap.mmap(-1, wanted, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(area))), ctypes.c_size_t(wanted)) == 0:
        raise Open(f"{wanted // MIB} MiB locked")
    if (number := ctypes.get_errno()) not in (errno.ENOMEM, errno.EAGAIN, errno.EPERM):
        fail(number)
    return f"{errno.errorcode[number]} beyond {hard // MIB} MiB"


@probe()
def queues() -> str:
    """POSIX message queues beyond the user's share of kernel memory."""
    made = 0
    attributes = buffer(64)
    attributes.raw = (0).to_bytes(8, "little") + (10).to_bytes(8, "little") + (8192).to_bytes(8, "little") + bytes(40)
    try:
        while made < 256:
            call("mq_open", f"q{made}".encode(), os.O_CREAT | os.O_RDWR, 0o600, attributes)
            made += 1
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENOSPC, errno.ENOMEM):
            raise
        return f"{error.strerror} after {made}"
    raise Open(f"{made} queues of 80 KiB")
