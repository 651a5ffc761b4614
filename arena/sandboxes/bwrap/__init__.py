"""The bubblewrap backend: one box is launch.py, which becomes bwrap, which starts init.py, which starts the command."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from arena.errors import SandboxError
from arena.paths import secrets as arena_secrets
from arena.sandboxes import RunningSandbox, SandboxSpec, cgroup, selftest
from arena.sandboxes.bwrap.start import program, start
from arena.sandboxes.host import survey
from arena.sandboxes.lifecycle import in_bounds, looks_at, settled, throw_away_user, until_empty
from arena.sandboxes.profile import arguments
from arena.sandboxes.python_env import installed
from arena.system import process

OLDEST = (0, 8)
"""First bwrap with --disable-userns."""
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
def run(box: SandboxSpec, *, secrets: tuple[Path, ...] | None = None) -> Iterator[RunningSandbox]:
    """Start the box; leaving the block kills what is left in it and proves that nothing is. SandboxError.

    As root the workspace becomes the property of the box's throw-away user; where it is bounded, it is a file system in
    memory meanwhile, and what that holds is copied into the folder at the end. `secrets` are arena's own unless given.
    """
    box, runtime = settled(box), installed()
    with ExitStack() as stack:
        uid = stack.enter_context(throw_away_user()) if os.geteuid() == 0 else None
        group = stack.enter_context(cgroup.Group(box.limits, cgroup.home(), fair=box.kind == "agent"))
        shelf = in_bounds(box, uid, stack)
        if shelf is not None:
            box = replace(box, workspace=shelf.path)
        words = arguments(box, runtime, survey(arena_secrets() if secrets is None else secrets))
        looks, watched = looks_at(box, group, shelf)
        mount = shelf.mount if shelf else None
        live = start(box, words, runtime, uid, groups=group.entrances, workspace=mount, in_force=group.in_force | watched)
        live.workspace, live.hurry = box.workspace, group.hurry
        yield stack.enter_context(until_empty(live, looks, group.hits, shelf))


def missing() -> str | None:
    """Why boxes cannot be made here and what to do about it, in one line; None when they can, which is tried once for real."""
    try:
        _self_test()
    except SandboxError as error:
        return " ".join(str(error).split())
    return None


def _self_test() -> None:
    """The real wall around a program that tries to look out of it."""
    told = process.run([program(), "--version"], limit_s=10).stdout.decode(errors="replace").strip()
    version = re.search(r"(\d+)\.(\d+)", told)
    if version is None or (int(version[1]), int(version[2])) < OLDEST:
        raise SandboxError(
            f"{program()} is {told or 'of unknown version'}; arena needs bubblewrap {'.'.join(map(str, OLDEST))} or later"
        )
    try:
        selftest.prove(run)
    except SandboxError as error:
        raise SandboxError(f"{error}{advice(_settings())}") from None


def advice(settings: Mapping[str, str]) -> str:
    """What to change about these kernel settings (name -> value), to follow an error; empty when they are in order."""
    return "".join(f"; {text.format(name=name)}" for name, (bad, text) in SETTINGS.items() if settings.get(name) == bad)


def _settings() -> dict[str, str]:
    """The kernel settings of this machine that matter to `advice`, as far as it has them."""
    paths = {name: Path("/proc/sys", *name.split(".")) for name in SETTINGS}
    return {name: path.read_text().strip() for name, path in paths.items() if path.exists()}
