"""Boxes with one fence taken away, in which a probe shows that it is one. Built from the very same list of arguments."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena.sandboxes import SandboxSpec
from arena.sandboxes.host import survey
from arena.sandboxes.profile import Argument, arguments
from arena.sandboxes.python_env import Runtime
from arena.system import process
from escape.stage import CONTROL_UID

SYSTEM_PYTHON = Path("/usr/bin/python3")
PLACES = {
    "outside": "no box at all, as a plain user of its own",
    "shadowed": "outside, Python without `-I -S`",
    "filter": "no system call filter, user namespaces allowed, bubblewrap's own process 1 and argument list",
    "capabilities": "user 0 with all capabilities in its own user namespace, no filter, nothing remounted read-only",
    "root": "started by the host's root without becoming somebody else first",
    "readonly": "without `--remount-ro`",
    "ipc": "without `--unshare-ipc`",
    "net": "without `--unshare-net`, on a host whose network is its own loopback",
    "unlimited": "the filter and every namespace, but no control group, resource limit or watcher",
    "terminal": "without `--new-session` and filter, on a terminal",
    "pid": "without `--unshare-pid`",  # last: there the host's process is killed
}
"""Where a probe is shown to open: what is missing there."""


@dataclass(frozen=True)
class Weak:
    """How to start one."""

    argv: tuple[str, ...]
    env: dict[str, str]
    fds: tuple[int, ...]
    uid: int | None


def without(words: list[Argument], *flags: str, operands: int = 0) -> list[Argument]:
    """The list without these flags and what follows each."""
    kept: list[Argument] = []
    skip = 0
    for word in words:
        if skip:
            skip -= 1
        elif isinstance(word, str) and word in flags:
            skip = operands
        else:
            kept.append(word)
    return kept


def weakened(place: str, words: list[Argument]) -> list[Argument]:
    """bwrap's options for that place."""
    words = without(words, "--as-pid-1")
    if place in ("filter", "capabilities", "terminal"):
        words = without(without(words, "--add-seccomp-fd", operands=1), "--disable-userns")
    if place == "capabilities":
        words = without(without(words, "--cap-drop", operands=1), "--remount-ro", operands=1)
        words = [*without(words, "--uid", "--gid", operands=1), "--uid", "0", "--gid", "0", "--cap-add", "ALL"]
    if place == "readonly":
        words = without(words, "--remount-ro", operands=1)
    if place == "terminal":
        words = without(words, "--new-session")
    return without(words, f"--unshare-{place}") if place in ("pid", "ipc", "net") else words


def weak(place: str, box: SandboxSpec, lure: str) -> Weak:
    """The box of that place, with the same files and the system's own Python, which every user may run."""
    version = process.run([str(SYSTEM_PYTHON), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], limit_s=20).stdout
    runtime = Runtime(version=version.decode().strip(), python=str(SYSTEM_PYTHON.resolve()))
    words = weakened(place, list(arguments(box, runtime, survey(()))))
    options, fds = [], []
    for word in words:
        if isinstance(word, bytes):
            fds.append(process.content(word))
            options.append(str(fds[-1]))
        else:
            options.append(str(word))
    uid = CONTROL_UID if os.geteuid() == 0 and place != "root" else None
    argv = ("bwrap", *options, "--", "/opt/venv/bin/python", *box.command[1:])
    return Weak(argv, {"PATH": "/usr/bin:/bin", "ARENA_LURE_KEY": lure}, tuple(fds), uid)


def started(how: Weak, plan: dict[str, Any], own_session: bool = True) -> subprocess.Popen[bytes]:
    """Start it with the plan on its standard input."""
    source = process.content(json.dumps(plan).encode())
    user: dict[str, Any] = {} if how.uid is None else {"user": how.uid, "group": how.uid, "extra_groups": []}
    try:
        return subprocess.Popen(
            how.argv,
            env=how.env,
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=how.fds,
            start_new_session=own_session,
            cwd="/",
            **user,
        )
    finally:
        for fd in (source, *how.fds):
            os.close(fd)
