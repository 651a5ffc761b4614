"""The sandbox backends by name."""

from __future__ import annotations

from arena.errors import SandboxError, UsageError
from arena.sandboxes import Sandbox, bwrap, docker


def backend(name: str = "bwrap") -> Sandbox:
    """The backend of that name. SandboxError with the reason when this machine cannot run it."""
    backends: dict[str, Sandbox] = {"bwrap": bwrap, "docker": docker}
    if name not in backends:
        raise UsageError(f"unknown sandbox {name!r} (known: {', '.join(backends)})")
    if reason := backends[name].missing():
        raise SandboxError(reason)
    return backends[name]
