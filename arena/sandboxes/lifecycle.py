"""What every backend does around a box: its folder and bounds before the start, its end, and what it met and left."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from arena.errors import SandboxError
from arena.sandboxes import MIB, SandboxSpec, cgroup, workspace_mount
from arena.sandboxes.host import connectable
from arena.sandboxes.running import Live
from arena.sandboxes.watchdog import Watch, resident
from arena.sandboxes.workspace_mount import Shelf
from arena.system import process

UIDS = range(64100, 65000)
"""Throw-away users, one per box, so that boxes cannot touch each other even if a wall falls. Debian assigns none of them."""
Look = Callable[[Live], str]


def settled(box: SandboxSpec) -> SandboxSpec:
    """The box with its workspace's real path, once that folder and its bridges' sockets are known to be there. SandboxError."""
    connectable(box.bridges.values())
    if box.workspace is None:
        return box
    if not box.workspace.is_dir():
        raise SandboxError(f"the workspace {box.workspace} is not a folder")
    return replace(box, workspace=box.workspace.resolve())


def in_bounds(box: SandboxSpec, uid: int | None, stack: ExitStack) -> Shelf | None:
    """Memory in the place of the workspace where that is to be bounded and can be; else the folder itself, given to the user."""
    if box.workspace is None or uid is None:
        return None
    if workspace_mount.said(box.limits):
        with contextlib.suppress(OSError):
            return stack.enter_context(workspace_mount.shelf(box.workspace, box.limits, uid))
    give(box.workspace, uid)
    return None


def looks_at(box: SandboxSpec, group: cgroup.Group, shelf: Shelf | None) -> tuple[list[Look], dict[str, str]]:
    """What has to be looked at while the box runs, and which limits that and the workspace's own memory hold, in words."""
    limits = box.limits
    looks: list[Look] = []
    watched: dict[str, str] = {}
    if limits.memory_bytes is not None and "memory" not in group.in_force:
        bound = limits.memory_bytes
        looks.append(lambda live: resident(live.pid, bound))
        watched["memory"] = f"ended above {bound // MIB} MiB held by processes"
    elif "memory" in group.in_force and box.kind == "agent":
        # Version 2 ends the whole box. Version 1 ends one process, which frees nothing of a full /tmp: the next one follows.
        looks.append(lambda _: "; ".join(group.hits()) if group.killed() else "")
    if shelf is not None:
        watched["workspace"] = f"tmpfs {workspace_mount.said(limits)}"
    elif box.workspace is not None and workspace_mount.said(limits):
        look = workspace_mount.watched(box.workspace, limits)
        looks.append(lambda _: look())
        watched["workspace"] = f"ended above {workspace_mount.said(limits)}"
    return looks, watched


@contextmanager
def until_empty(live: Live, looks: Sequence[Look], met: Callable[[], list[str]], shelf: Shelf | None) -> Iterator[Live]:
    """The box until its end, which is proven; then what it has met, by `met` or by a look, and its workspace brought home."""
    watch = Watch(live.kill, [partial(look, live) for look in looks])

    def tell() -> None:
        live.exceeded = tuple(met() or ([watch.found] if watch.found else []))

    def keep() -> None:
        if shelf is not None and live.empty:  # else somebody may still write in it
            live.lost = shelf.bring_home()

    with ExitStack() as last:  # from below: whatever goes wrong in one, the others follow, and an agent's work is kept
        last.callback(keep)
        last.callback(tell)
        last.callback(live.close)
        last.callback(watch.stop)
        last.callback(live.kill)
        last.callback(met)  # an engine takes its groups away with the container
        yield live


def give(workspace: Path, uid: int) -> None:
    """Make a folder and all in it that user's. `chown` copes with trees too deep for Python and follows no link."""
    done = process.run(["chown", "-R", "-h", f"{uid}:{uid}", "--", str(workspace)], limit_s=120)
    if done.returncode:
        raise SandboxError(f"cannot hand {workspace} to user {uid}: {done.stderr.decode(errors='replace').strip()}")


@contextmanager
def throw_away_user() -> Iterator[int]:
    """A user id that no other box of this machine has now. The kernel frees the name with the process that holds it.

    Nor has a process of an earlier box, which would count for the new one: an arena was killed, and nobody reaps what it left.
    """
    for uid in UIDS:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
            try:
                held.bind(f"\0arena/uid/{uid}")
            except OSError:
                continue
            if uid not in users():
                yield uid
                return
    raise SandboxError(
        f"all {len(UIDS)} throw-away users have processes, of running boxes or dead ones that nobody has reaped; end some of them"
    )


def users() -> set[int]:
    """Who has processes on this machine, dead ones that nobody has reaped among them."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.add(entry.stat().st_uid)  # the kernel's own: of this folder, unlike of what it holds, also when undumpable
    return found
