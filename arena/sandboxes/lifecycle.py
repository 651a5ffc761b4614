"""What every backend does around a sandbox: its user, its workspace, its limits and their checks, and its proven end."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from arena.errors import SandboxError
from arena.sandboxes import MIB, SandboxSpec, cgroup, workspace_mount
from arena.sandboxes.running import DYING_S, SandboxHandle, await_dying
from arena.sandboxes.watchdog import Watchdog, check_memory
from arena.sandboxes.workspace_mount import WorkspaceMount
from arena.system import process

UIDS = range(64100, 65000)
"""Throw-away users, one per sandbox: sandboxes cannot touch each other even if an isolation layer fails. Debian assigns none."""
LimitCheck = Callable[[SandboxHandle], str]  # returns why the sandbox is to be ended; empty when it is within its limit


def validated(spec: SandboxSpec) -> SandboxSpec:
    """The spec with its workspace's real path. SandboxError when that folder is missing."""
    if spec.workspace is None:
        return spec
    if not spec.workspace.is_dir():
        raise SandboxError(f"the workspace {spec.workspace} is not a folder")
    return replace(spec, workspace=spec.workspace.resolve())


def bounded_workspace(spec: SandboxSpec, uid: int | None, stack: ExitStack) -> WorkspaceMount | None:
    """Put a limited workspace into memory where the kernel can; otherwise give its folder to the user and return None."""
    if spec.workspace is None or uid is None:
        return None
    if workspace_mount.describe_bounds(spec.limits):
        with contextlib.suppress(OSError):
            return stack.enter_context(workspace_mount.workspace_in_memory(spec.workspace, spec.limits, uid))
    change_owner(spec.workspace, uid)
    return None


def rlimits(spec: SandboxSpec, uid: int | None) -> dict[str, int]:
    """Limits that the launcher or the engine sets; process 1 adds its own. Before Linux 5.14 RLIMIT_NPROC needs an own user."""
    limits = {
        # No core, not even for a handler of the host that core_pattern names: it would run as root on what a sandbox made, and
        # 0 does not keep it away. 1 does; the filter keeps the value.
        "RLIMIT_CORE": 1,
        "RLIMIT_NOFILE": spec.limits.open_files,
        "RLIMIT_FSIZE": spec.limits.file_bytes,
        "RLIMIT_RTPRIO": 0,  # some desktops allow real-time priority to their users: one sandbox could starve the judge
        "RLIMIT_NICE": 0,
    }
    by_user = uid is not None and not counts_by_namespace(os.uname().release)
    return limits | {"RLIMIT_NPROC": spec.limits.processes} if by_user else limits


def fixed_limits(spec: SandboxSpec, pinned_by: str) -> dict[str, str]:
    """The part of `RunningSandbox.limits` that every backend enforces in the same way."""
    sizes = {"tmp": spec.limits.tmp_bytes, "home": spec.limits.home_bytes, "shm": spec.limits.shm_bytes}
    limits = {name: f"tmpfs {size // MIB} MiB" for name, size in sizes.items()}
    limits["files"] = f"RLIMIT_FSIZE {spec.limits.file_bytes // MIB} MiB"
    limits["open_files"] = f"RLIMIT_NOFILE {spec.limits.open_files}"
    if spec.cpus is not None:
        limits["cpus"] = f"{pinned_by} {','.join(map(str, sorted(spec.cpus)))}, fixed by the filter"
    return limits


def counts_by_namespace(release: str) -> bool:
    """Whether a kernel counts a user's processes for RLIMIT_NPROC in each user namespace apart, as from 5.14 on."""
    major, minor = release.split("-")[0].split(".")[:2]
    return (int(major), int(minor)) >= (5, 14)


def limit_checks(
    spec: SandboxSpec, group: cgroup.SandboxCgroup, mount: WorkspaceMount | None
) -> tuple[list[LimitCheck], dict[str, str]]:
    """The checks that the watchdog makes, and in words the limits that it or the workspace's own memory enforces."""
    limits = spec.limits
    checks: list[LimitCheck] = []
    enforced: dict[str, str] = {}
    if limits.memory_bytes is not None and "memory" not in group.in_force:
        bound = limits.memory_bytes
        checks.append(lambda running: check_memory(running.pid, bound))
        enforced["memory"] = f"ended above {bound // MIB} MiB held by processes"
    elif "memory" in group.in_force and spec.kind == "agent":
        # Version 2 ends the whole sandbox. Version 1 ends one process, which frees nothing of a full /tmp: the next one follows.
        checks.append(lambda _: "; ".join(group.exceeded()) if group.oom_kills() else "")
    if mount is not None:
        enforced["workspace"] = f"tmpfs {workspace_mount.describe_bounds(limits)}"
    elif spec.workspace is not None and workspace_mount.describe_bounds(limits):
        check = workspace_mount.workspace_checker(spec.workspace, limits)
        checks.append(lambda _: check())
        enforced["workspace"] = f"ended above {workspace_mount.describe_bounds(limits)}"
    return checks, enforced


@contextmanager
def lifetime(
    running: SandboxHandle, checks: Sequence[LimitCheck], exceeded: Callable[[], list[str]], mount: WorkspaceMount | None
) -> Iterator[SandboxHandle]:
    """Yield the sandbox, kill it, and prove that it is empty; then record the limits it exceeded and copy its workspace back.

    `exceeded` returns the limits that the kernel enforced, in words; without any, the watchdog's finding counts.
    """
    watchdog = Watchdog(running.kill, [partial(check, running) for check in checks])

    def record_exceeded() -> None:
        running.exceeded = tuple(exceeded() or ([watchdog.finding] if watchdog.finding else []))

    def keep_workspace() -> None:
        if mount is None:
            return
        if not running.empty:  # a process may still write in it: an agent could keep what it wrote from the record
            await_dying(DYING_S)
        running.lost = mount.copy_back()

    with ExitStack() as last:  # from below: whatever goes wrong in one, the others follow, and an agent's work is kept
        last.callback(keep_workspace)
        last.callback(record_exceeded)
        last.callback(running.close)
        last.callback(watchdog.stop)
        last.callback(running.kill)
        last.callback(exceeded)  # an engine takes its groups away with the container
        yield running


def change_owner(workspace: Path, uid: int) -> None:
    """Make a folder and all in it that user's. `chown` copes with trees too deep for Python and follows no link."""
    done = process.run(["chown", "-R", "-h", f"{uid}:{uid}", "--", str(workspace)], limit_s=120)
    if done.returncode:
        raise SandboxError(f"cannot give {workspace} to user {uid}: {done.stderr.decode(errors='replace').strip()}")


@contextmanager
def throw_away_user() -> Iterator[int]:
    """A user id that no other sandbox of this machine has now. The kernel frees its name with the process that holds it.

    A user with a process of an earlier sandbox is left out: it would count for the new one. Such a process stays when arena was
    killed and no other process reaps what it left. The name's socket takes no connection and no datagram: with an open network a
    sandbox sees it, and could leave descriptors in it.
    """
    busy: set[int] = set()
    for uid in UIDS:
        if uid in busy:
            continue
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as held:
            try:
                held.bind(f"\0arena/uid/{uid}")
            except OSError:
                continue
            busy = users_with_processes()  # now that no other arena can start a sandbox of that user
            if uid not in busy:
                yield uid
                return
    raise SandboxError(
        f"all {len(UIDS)} throw-away users have processes, running or dead and not reaped; end some of these processes"
    )


def users_with_processes() -> set[int]:
    """Users that have processes on this machine; dead processes that are not reaped count too."""
    found = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    found.add(
                        entry.stat().st_uid
                    )  # the kernel's own: of this folder, unlike of what it holds, also when undumpable
    return found
