"""The bubblewrap backend: one box is launch.py, which becomes bwrap, which starts init.py, which starts the command."""

from __future__ import annotations

import functools
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

from arena import process
from arena.errors import SandboxError
from arena.paths import secrets as arena_secrets
from arena.sandboxes import Box, Running
from arena.sandboxes.host import survey
from arena.sandboxes.profile import arguments
from arena.sandboxes.runtime import installed
from arena.sandboxes.start import program, start

UIDS = range(64100, 65000)
"""Throw-away users, one per box, so that boxes cannot touch each other even if a wall falls. Debian assigns none of them."""
OLDEST = (0, 8)
"""First bwrap with --disable-userns."""
SEALED = {"CapEff": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2"}
"""What the kernel must say about a process in a box: no capability, none to be gained, a filter in force."""
SETTINGS = {
    "kernel.apparmor_restrict_unprivileged_userns": (
        "1",
        "AppArmor forbids user namespaces here (Ubuntu 23.10 and later): give bwrap a profile that allows `userns` "
        "(`apt-get install apparmor-profiles` has bwrap-userns-restrict), or run `sudo sysctl -w {name}=0`",
    ),
    "kernel.unprivileged_userns_clone": ("0", "user namespaces are switched off here: `sudo sysctl -w {name}=1`"),
    "user.max_user_namespaces": ("0", "user namespaces are switched off here: `sudo sysctl -w {name}=10000`"),
}
"""Kernel settings that forbid user namespaces: the value that does, and what to do."""


@contextmanager
def run(box: Box, *, secrets: tuple[Path, ...] | None = None) -> Iterator[Running]:
    """Start the box; leaving the block kills what is left in it and proves that nothing is. SandboxError.

    The thread that enters must live as long as the box: the kernel ends the box with the thread that started it.
    As root the workspace becomes the property of the box's throw-away user. `secrets` are arena's own unless given.
    """
    if box.workspace is not None:
        if not box.workspace.is_dir():
            raise SandboxError(f"the workspace {box.workspace} is not a folder")
        box = replace(box, workspace=box.workspace.resolve())
    runtime = installed()
    words = arguments(box, runtime, survey(arena_secrets() if secrets is None else secrets))
    with ExitStack() as stack:
        uid = stack.enter_context(_throw_away_user()) if os.geteuid() == 0 else None
        if uid is not None and box.workspace is not None:
            _give(box.workspace, uid)
        yield stack.enter_context(closing(start(box, words, runtime, uid)))


def missing() -> str | None:
    """Why boxes cannot be made here and what to do about it, in one line; None when they can, which is tried once for real."""
    try:
        _self_test()
    except SandboxError as error:
        return " ".join(str(error).split())
    return None


@functools.cache  # of an exception nothing is kept: who has mended the machine may ask again
def _self_test() -> None:
    """Build the real wall around a `cat` and read what the kernel says about it."""
    told = process.run([program(), "--version"], limit_s=10).stdout.decode(errors="replace").strip()
    version = re.search(r"(\d+)\.(\d+)", told)
    if version is None or (int(version[1]), int(version[2])) < OLDEST:
        raise SandboxError(
            f"{program()} is {told or 'of unknown version'}; arena needs bubblewrap {'.'.join(map(str, OLDEST))} or later"
        )
    try:
        with run(Box(kind="worker", command=("cat", "/proc/self/status"))) as box:
            status = dict(line.split(":\t", 1) for line in box.stdout.read().decode().splitlines() if ":\t" in line)
            said, code = box.stderr.read().decode(errors="replace"), box.wait()
    except SandboxError as error:
        raise SandboxError(f"{error}{advice(_settings())}") from None
    if code:
        raise SandboxError(f"a box was made, but `cat` ended with {code} in it: {said.strip()}")
    for key, wanted in SEALED.items():
        if (found := status.get(key)) != wanted:
            raise SandboxError(
                f"a box was made, but it is not sealed: {key} is {found} in it, not {wanted}; report this with `uname -a`"
            )


def advice(settings: Mapping[str, str]) -> str:
    """What to change about these kernel settings (name -> value), to follow an error; empty when they are in order."""
    return "".join(f"; {text.format(name=name)}" for name, (bad, text) in SETTINGS.items() if settings.get(name) == bad)


def _settings() -> dict[str, str]:
    """The kernel settings of this machine that matter to `advice`, as far as it has them."""
    paths = {name: Path("/proc/sys", *name.split(".")) for name in SETTINGS}
    return {name: path.read_text().strip() for name, path in paths.items() if path.exists()}


@contextmanager
def _throw_away_user() -> Iterator[int]:
    """A user id that no other box of this machine has now. The kernel frees the name with the process that holds it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
        for uid in UIDS:
            try:
                held.bind(f"\0arena/uid/{uid}")
            except OSError:
                continue
            yield uid
            return
    raise SandboxError(f"all {len(UIDS)} throw-away users are taken by running boxes; end some of them")


def _give(workspace: Path, uid: int) -> None:
    """Make a folder and all in it that user's. `chown` copes with trees too deep for Python and follows no link."""
    done = process.run(["chown", "-R", "-h", f"{uid}:{uid}", "--", str(workspace)], limit_s=120)
    if done.returncode:
        raise SandboxError(f"cannot hand {workspace} to user {uid}: {done.stderr.decode(errors='replace').strip()}")
