"""The docker backend: the same wall as bwrap's, built by a Docker engine of this machine, with the same process 1.

The image holds nothing but links: what a box needs of the machine is bound into it read-only, as bwrap does. Streams, the
judge's socket and the order reach process 1 over a socket (enter.py), so the engine knows neither what a box is told nor what
it says. No registry is ever asked. One fence fewer than bwrap: an engine gives its boxes no user namespace of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from arena.errors import SandboxError
from arena.paths import secrets as arena_secrets
from arena.sandboxes import MIB, RunningSandbox, SandboxSpec, selftest
from arena.sandboxes.docker.config import User
from arena.sandboxes.docker.engine import connected, host, sees_our_mounts, sweep, told
from arena.sandboxes.docker.plan import mount_points, plan
from arena.sandboxes.docker.start import Container, start
from arena.sandboxes.host import survey
from arena.sandboxes.lifecycle import in_bounds, looks_at, settled, throw_away_user, until_empty
from arena.sandboxes.profile import arguments
from arena.sandboxes.python_env import installed
from arena.sandboxes.running import Live

SHIFTED = {"name=rootless": "runs without root", "name=userns": "maps users (userns-remap)"}
"""What an engine must not do: its boxes' users are then others than those to which arena gives a workspace."""


@contextmanager
def run(box: SandboxSpec, *, secrets: tuple[Path, ...] | None = None) -> Iterator[RunningSandbox]:
    """Start the box; leaving the block kills what is left in it and proves that nothing is. SandboxError.

    The workspace becomes the property of the box's throw-away user. `secrets` are arena's own unless given. Root only.
    """
    box, runtime = settled(box), installed()
    with ExitStack() as stack:
        engine = stack.enter_context(connected())
        sweep(engine)
        uid = stack.enter_context(throw_away_user())
        shelf = in_bounds(box if sees_our_mounts() else _unbounded(box), uid, stack)
        if shelf is not None:
            box = replace(box, workspace=shelf.path)
        words = arguments(box, runtime, survey(arena_secrets() if secrets is None else secrets))
        made = plan(words, uid, uid, mount_points(Path("/proc/self/mountinfo").read_text()))
        live, container = start(engine, stack, box, made, runtime, User(uid, uid), shelf)
        stack.callback(live.close)
        looks, watched = looks_at(box, container.group, shelf)
        live.limits = {**live.limits, **container.group.in_force, **watched}
        live.workspace = box.workspace
        hits: list[str] = []
        met = partial(_met, container, box, hits)

        def early(_: Live) -> str:
            met()
            return ""

        yield stack.enter_context(until_empty(live, [early, *looks], met, shelf))


def _unbounded(box: SandboxSpec) -> SandboxSpec:
    """The box with its workspace in a folder. That is watched, then: the engine could not see memory in its place."""
    return replace(box, limits=replace(box.limits, workspace_bytes=None, workspace_files=None))


def _met(container: Container, box: SandboxSpec, hits: list[str]) -> list[str]:
    """Which limits the box has met, in words, kept in `hits`: with the container the engine removes its groups."""
    hits[:] = container.group.hits() or hits
    if container.memory_ended and not hits:
        hits.append(f"its memory of {(box.limits.memory_bytes or 0) // MIB} MiB was used up")
    return hits


def missing() -> str | None:
    """Why boxes cannot be made here and what to do about it, in one line; None when they can, which is tried once for real."""
    try:
        _self_test(host())
    except SandboxError as error:
        return " ".join(str(error).split())
    return None


def describe() -> str:
    """The engine in a few words. SandboxError when none can be used, without starting a box."""
    with connected() as engine, told("the Docker engine"):
        version, info = engine.version(), engine.info()
    return f"engine {version['Version']} at {host()}, {info['Driver']}, cgroup v{info.get('CgroupVersion', '1')}"


def _self_test(address: str) -> None:
    """Build the real wall and look out of it."""
    with connected() as engine, told(f"the Docker engine at {address}"):
        options = engine.info().get("SecurityOptions") or []
    for option, what in SHIFTED.items():
        if any(option in found for found in options):
            raise SandboxError(
                f"the Docker engine at {address} {what}, and a workspace's files would not be the box's; use bwrap"
            )
    selftest.prove(run, user_namespace=False)
