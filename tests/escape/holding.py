"""Probes of holding: resources that a sandbox takes while it runs, and that the host then lacks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import select
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from arena.sandboxes import RunningSandbox, SandboxSpec, bwrap
from escape.inside.common import Open, Untried, raw

if TYPE_CHECKING:
    from escape.lures import Host

from escape.hosted import hosted


@contextlib.contextmanager
def holding(text: str) -> Iterator[RunningSandbox]:
    """A sandbox that runs this Python and then waits."""
    with bwrap.run(
        SandboxSpec("agent", ("python", "-c", f"import os, sys, time, ctypes, fcntl\n{text}\ntime.sleep(60)"))
    ) as running:
        yield running


@hosted("holding", "agent")
def terminals(host: Host) -> str:
    """All pseudo-terminals that the sandbox can open: can the host still open one?"""
    text = (
        "got = 0\ntry:\n    while True: os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY); got += 1\n"
        "except OSError: print(got, flush=True)"
    )
    with holding(text) as running:
        got = int(running.stdout.readline())
        try:
            for fd in pty.openpty():
                os.close(fd)
        except OSError as error:
            raise Open(f"with {got} held the host gets none: {error.strerror}") from None
    return f"{got} held, the host gets one"


@hosted("holding", "agent")
def watchers(host: Host) -> str:
    """All inotify instances that the sandbox can create: can arena's own user still create one?"""
    text = "got = 0\nwhile ctypes.CDLL(None).inotify_init1(0) >= 0: got += 1\nprint(got, flush=True)"
    libc_inotify = 294 if os.uname().machine == "x86_64" else 26
    with holding(text) as running:
        got = int(running.stdout.readline())
        try:
            fd = raw(libc_inotify, 0)
        except OSError as error:
            raise Open(f"with {got} held the same user gets none on the host: {os.strerror(error.errno or 0)}") from None
        os.close(fd)
    return f"{got} held, the host's user gets one"


@hosted("holding", "agent")
def users(host: Host) -> str:
    """The users of two sandboxes that run at the same time -- isolate: one user for each sandbox."""
    if os.geteuid() != 0:
        raise Untried("as a plain user all sandboxes run as that user, and only the namespaces separate them")
    with holding("print('ready', flush=True)") as one, holding("print('ready', flush=True)") as two:
        found = [Path(f"/proc/{sandbox.pid}/status").read_text().split("Uid:\t")[1].split()[0] for sandbox in (one, two)]  # type: ignore[attr-defined]
    if found[0] == found[1] or "0" in found:
        raise Open(f"they are users {found}")
    return f"users {found[0]} and {found[1]}"


@hosted("holding", "agent")
def locks(host: Host) -> str:
    """An exclusive lock on a system file that the sandbox may only read."""
    with holding("fd = os.open('/usr/bin/env', 0); fcntl.flock(fd, fcntl.LOCK_EX); print('got', flush=True)") as running:
        assert running.stdout.readline() == b"got\n"
        with open("/usr/bin/env", "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                assert error.errno == errno.EWOULDBLOCK
                raise Open("the host cannot lock /usr/bin/env meanwhile") from None
    return "the host can lock it too"


@hosted("holding", "agent")
def watching(host: Host) -> str:
    """Watching when the host uses its programs, through inotify on files that are the same inodes."""
    text = (
        "fd = ctypes.CDLL(None).inotify_init1(0); ctypes.CDLL(None).inotify_add_watch(fd, b'/usr/bin/env', 0x20)\n"
        "print('ready', flush=True); os.read(fd, 4096); print('seen', flush=True)"
    )
    with holding(text) as running:
        assert running.stdout.readline() == b"ready\n"
        Path("/usr/bin/env").read_bytes()
        if select.select([running.stdout], [], [], 0.5)[0]:
            raise Open("it saw the host open /usr/bin/env")
    return "nothing seen"
