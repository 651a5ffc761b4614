"""The bubblewrap backend: launch.py becomes bwrap, bwrap starts init.py as process 1, init.py starts the command."""

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
from arena.sandboxes.bwrap.start import find_bwrap, start
from arena.sandboxes.host import survey
from arena.sandboxes.lifecycle import bounded_workspace, lifetime, limit_checks, throw_away_user, validated
from arena.sandboxes.profile import bwrap_arguments
from arena.sandboxes.python_env import current_python
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
def run(spec: SandboxSpec, *, secrets: tuple[Path, ...] | None = None) -> Iterator[RunningSandbox]:
    """Start the sandbox; leaving the block kills what is left in it and proves that no process remains. SandboxError.

    As root the workspace belongs to the sandbox's throw-away user. A limited one is a file system in memory meanwhile, whose
    content is copied into the folder at the end. `secrets` are arena's own unless given.
    """
    spec, python = validated(spec), current_python()
    with ExitStack() as stack:
        uid = stack.enter_context(throw_away_user()) if os.geteuid() == 0 else None
        group = stack.enter_context(cgroup.SandboxCgroup(spec.limits, cgroup.arena_cgroups(), fair=spec.kind == "agent"))
        mount = bounded_workspace(spec, uid, stack)
        if mount is not None:
            spec = replace(spec, workspace=mount.path)
        arguments = bwrap_arguments(spec, python, survey(arena_secrets() if secrets is None else secrets))
        checks, enforced = limit_checks(spec, group, mount)
        running = start(
            spec,
            arguments,
            python,
            uid,
            groups=group.procs_files,
            workspace=mount.fd if mount else None,
            in_force=group.in_force | enforced,
        )
        running.workspace, running.before_kill = spec.workspace, group.prepare_kill
        yield stack.enter_context(lifetime(running, checks, group.exceeded, mount))


def missing() -> str | None:
    """Why this backend cannot be used here and what to do about it, in one line; None when a real sandbox has passed its test."""
    try:
        _self_test()
    except SandboxError as error:
        return " ".join(str(error).split())
    return None


def _self_test() -> None:
    """Check bwrap's version and inspect a real sandbox from inside."""
    output = process.run([find_bwrap(), "--version"], limit_s=10).stdout.decode(errors="replace").strip()
    version = re.search(r"(\d+)\.(\d+)", output)
    if version is None or (int(version[1]), int(version[2])) < OLDEST:
        raise SandboxError(
            f"{find_bwrap()} is {output or 'of unknown version'}; arena needs bubblewrap {'.'.join(map(str, OLDEST))} or later"
        )
    try:
        selftest.prove(run)
    except SandboxError as error:
        raise SandboxError(f"{error}{advice(_settings())}") from None


def advice(settings: Mapping[str, str]) -> str:
    """The end of an error text: which of these kernel settings (name -> value) to change; empty when none."""
    return "".join(f"; {text.format(name=name)}" for name, (bad, text) in SETTINGS.items() if settings.get(name) == bad)


def _settings() -> dict[str, str]:
    """This machine's kernel settings for `advice`, as far as it has them."""
    paths = {name: Path("/proc/sys", *name.split(".")) for name in SETTINGS}
    return {name: path.read_text().strip() for name, path in paths.items() if path.exists()}
