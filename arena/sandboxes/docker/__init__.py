"""The docker backend: the same sandbox as bwrap's, started by a Docker engine of this machine, with the same process 1.

The image holds only links and empty folders; arena binds the machine's files into the container read-only, as bwrap does.
Streams, the judge's channel and the order reach process 1 over a socket (enter.py). So the engine knows neither a sandbox's
input nor its output. No registry is ever asked. It has one isolation layer fewer than bwrap: no user namespace of its own.
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
from arena.sandboxes.docker.engine import connected, engine_errors, host, sees_our_mounts, sweep
from arena.sandboxes.docker.plan import container_plan, mount_points
from arena.sandboxes.docker.start import Container, start
from arena.sandboxes.host import survey
from arena.sandboxes.lifecycle import bounded_workspace, lifetime, limit_checks, throw_away_user, validated
from arena.sandboxes.profile import profile
from arena.sandboxes.python_env import current_python
from arena.sandboxes.running import SandboxHandle, await_dying

SHIFTED = {"name=rootless": "runs without root", "name=userns": "maps users (userns-remap)"}
"""Options that an engine must not have: its users then differ from those to which arena gives a workspace."""


@contextmanager
def run(spec: SandboxSpec, *, secrets: tuple[Path, ...] | None = None) -> Iterator[RunningSandbox]:
    """Start the sandbox; leaving the block kills what is left in it and proves that no process remains. SandboxError.

    The workspace belongs to the sandbox's throw-away user. `secrets` are arena's own unless given. Root only.
    """
    spec = validated(spec)
    await_dying()
    with ExitStack() as stack:
        engine = stack.enter_context(connected())
        sweep(engine)
        uid = stack.enter_context(throw_away_user())
        # Its workspace stays in a folder, which the watchdog checks, where the engine could not see memory in its place.
        unbounded = replace(spec, limits=replace(spec.limits, workspace_bytes=None, workspace_files=None))
        mount = bounded_workspace(spec if sees_our_mounts() else unbounded, uid, stack)
        if mount is not None:
            spec = replace(spec, workspace=mount.path)
        shown = profile(spec, current_python(spec.packages), survey(arena_secrets() if secrets is None else secrets), user=uid)
        plan = container_plan(shown, uid, mount_points(Path("/proc/self/mountinfo").read_text()))
        running, container = start(engine, stack, spec, plan, uid, mount)
        stack.callback(running.close)
        checks, enforced = limit_checks(spec, container.group, mount)
        running.limits = {**running.limits, **container.group.in_force, **enforced}
        running.workspace = spec.workspace
        exceeded = partial(_exceeded, container, spec, [])

        def read_early(_: SandboxHandle) -> str:
            exceeded()
            return ""

        yield stack.enter_context(lifetime(running, [read_early, *checks], exceeded, mount))


def _exceeded(container: Container, spec: SandboxSpec, kept: list[str]) -> list[str]:
    """Limits that the sandbox has reached, in words. `kept` holds them: with the container the engine removes its groups."""
    kept[:] = container.group.exceeded() or kept
    if container.memory_ended and not kept:
        kept.append(f"its memory of {(spec.limits.memory_bytes or 0) // MIB} MiB was used up")
    return kept


def missing() -> str | None:
    """Why this backend cannot be used here and what to do about it, in one line; None when a real sandbox has passed its test."""
    try:
        _self_test()
    except SandboxError as error:
        return " ".join(str(error).split())
    return None


def describe() -> str:
    """The engine in a few words, without starting a sandbox. SandboxError when none can be used."""
    with connected() as engine, engine_errors("the Docker engine"):
        version, info = engine.version(), engine.info()
    return f"engine {version['Version']} at {host()}, {info['Driver']}, cgroup v{info.get('CgroupVersion', '1')}"


def _self_test() -> None:
    """Check the engine's options and inspect a real sandbox from inside."""
    with connected() as engine, engine_errors(f"the Docker engine at {host()}"):
        options = engine.info().get("SecurityOptions") or []
    for option, what in SHIFTED.items():
        if any(option in found for found in options):
            raise SandboxError(
                f"the Docker engine at {host()} {what}, and a workspace's files would not be the sandbox's; use bwrap"
            )
    selftest.prove(run, user_namespace=False)
