"""Weakened sandboxes for positive controls: the same list of arguments with one isolation layer removed."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena.sandboxes import SandboxSpec
from arena.sandboxes.bwrap.arguments import Argument, bwrap_arguments
from arena.sandboxes.host import survey
from arena.sandboxes.profile import profile
from arena.sandboxes.python_env import PythonEnvironment
from arena.system import process
from escape.host_namespaces import CONTROL_UID

SYSTEM_PYTHON = Path("/usr/bin/python3")
VARIANTS = {
    "outside": "no sandbox at all, as a plain user of its own",
    "shadowed": "outside, Python without `-I -S`",
    "filter": "no system call filter, user namespaces allowed, bubblewrap's own process 1 and argument list",
    "capabilities": "user 0 with all capabilities in its own user namespace, no filter, nothing remounted read-only",
    "root": "started by the host's root without switching to another user first",
    "readonly": "without `--remount-ro`",
    "ipc": "without `--unshare-ipc`",
    "net": "without `--unshare-net`, on a host whose network is its own loopback",
    "unlimited": "the filter and every namespace, but no control group, resource limit or watchdog",
    "terminal": "without `--new-session` and filter, on a terminal",
    "pid": "without `--unshare-pid`",  # last: there the host's process is killed
}
"""Weakened variants of the sandbox, and what each lacks. A positive control shows that the probe opens there."""


@dataclass(frozen=True)
class WeakenedSandbox:
    """How to start a weakened sandbox."""

    argv: tuple[str, ...]
    env: dict[str, str]
    fds: tuple[int, ...]
    uid: int | None


def without(words: list[Argument], *flags: str, operands: int = 0) -> list[Argument]:
    """The list without these flags and their operands."""
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


def weaken(variant: str, words: list[Argument]) -> list[Argument]:
    """bwrap's options for that variant."""
    words = without(words, "--as-pid-1")
    if variant in ("filter", "capabilities", "terminal"):
        words = without(without(words, "--add-seccomp-fd", operands=1), "--disable-userns")
    if variant == "capabilities":
        words = without(without(words, "--cap-drop", operands=1), "--remount-ro", operands=1)
        words = [*without(words, "--uid", "--gid", operands=1), "--uid", "0", "--gid", "0", "--cap-add", "ALL"]
    if variant == "readonly":
        words = without(words, "--remount-ro", operands=1)
    if variant == "terminal":
        words = without(words, "--new-session")
    return without(words, f"--unshare-{variant}") if variant in ("pid", "ipc", "net") else words


def build(variant: str, spec: SandboxSpec, lure: str) -> WeakenedSandbox:
    """The sandbox of that variant, with the same files and the system's Python, which every user may run."""
    version = process.run([str(SYSTEM_PYTHON), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], limit_s=20).stdout
    python = PythonEnvironment(version=version.decode().strip(), interpreter=str(SYSTEM_PYTHON.resolve()))
    words = weaken(variant, list(bwrap_arguments(profile(spec, python, survey(())))))
    options, fds = [], []
    for word in words:
        if isinstance(word, bytes):
            fds.append(process.readable_fd(word))
            options.append(str(fds[-1]))
        else:
            options.append(str(word))
    uid = CONTROL_UID if os.geteuid() == 0 and variant != "root" else None
    argv = ("bwrap", *options, "--", "/opt/venv/bin/python", *spec.command[1:])
    return WeakenedSandbox(argv, {"PATH": "/usr/bin:/bin", "ARENA_LURE_KEY": lure}, tuple(fds), uid)


def start(sandbox: WeakenedSandbox, plan: dict[str, Any], own_session: bool = True) -> subprocess.Popen[bytes]:
    """Start a weakened sandbox with the plan on its standard input."""
    source = process.readable_fd(json.dumps(plan).encode())
    user: dict[str, Any] = {} if sandbox.uid is None else {"user": sandbox.uid, "group": sandbox.uid, "extra_groups": []}
    try:
        return subprocess.Popen(
            sandbox.argv,
            env=sandbox.env,
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=sandbox.fds,
            start_new_session=own_session,
            cwd="/",
            **user,
        )
    finally:
        for fd in (source, *sandbox.fds):
            os.close(fd)
