"""The probes where a fence is missing: there they must open."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from arena.sandboxes import SandboxSpec
from escape import stage, weaker
from escape.boxes import after, on_a_terminal, outcomes, plan_of
from escape.inside import attempt
from escape.lures import LIMIT_S, LIMITS, MEMORY_BYTES, PROBES_INSIDE, Found, Host


def controls(host: Host) -> dict[str, tuple[str, str, str]]:
    """Every probe with a control, in its weakened place: probe -> (place, state, detail)."""
    found: dict[str, tuple[str, str, str]] = {}
    for place in weaker.PLACES:
        wanted = [probe.name for probe in attempt.PROBES if probe.opens == place]
        batches = [[probe.name for probe in attempt.PROBES if probe.opens == place and not probe.alone]]
        batches += [[probe.name] for probe in attempt.PROBES if probe.opens == place and probe.alone]
        reason = unable(host, place)
        for batch in filter(None, batches):
            got = {} if reason else weak_run(host, place, batch)
            for name in batch:
                state, detail = got.get(name, ("untried", reason) if reason else ("broken", "its box ended before it"))
                if not reason:
                    state, detail = after(host, name, state, detail)
                found[name] = (place, state, detail)
        assert set(wanted) <= set(found)
    return found


def unable(host: Host, place: str) -> str:
    """Why that place cannot be had without harm; empty when it can."""
    if (place == "net" and not host.staged) or (place in ("root", "pid") and os.geteuid() != 0):
        return "only root can try it harmlessly: on a host of the suite's own, as a user whom nobody else is"
    if not weaker.SYSTEM_PYTHON.exists():
        return f"no {weaker.SYSTEM_PYTHON}"
    return ""


def weak_run(host: Host, place: str, probes: list[str]) -> Found:
    """Run the probes in that place."""
    limited: dict[str, int | None] = {"process_limit": None, "memory_bytes": None}
    if place == "unlimited":
        limited = {"process_limit": LIMITS.processes, "memory_bytes": MEMORY_BYTES}
    plan = plan_of(host, "agent", place, probes, pinned=True, **limited)
    lure = os.environ["ARENA_LURE_KEY"]
    if place in ("outside", "shadowed"):
        return unboxed(host, plan, lure)
    box = SandboxSpec("agent", ("python", "-I", PROBES_INSIDE), workspace=host.folder / "control", limits=LIMITS,
              files={PROBES_INSIDE: host.probes, "/workspace/check.py": b"# given\n"})  # fmt: skip
    how = weaker.weak(place, box, lure)
    if place == "terminal":
        name = probes[0]
        told = on_a_terminal(
            lambda: outcomes(weaker.started(how, plan, own_session=False).communicate()[0]).get(
                name, ("broken", "it said nothing")
            )
        )
        return {name: told}
    running = weaker.started(how, plan)
    said, complaint = running.communicate(timeout=LIMIT_S)
    if not said:
        return dict.fromkeys(probes, ("broken", complaint.decode(errors="replace")[-300:]))
    return outcomes(said)


def unboxed(host: Host, plan: dict[str, Any], lure: str) -> Found:
    """Run probes as a plain user without any box."""
    (host.folder / "probes.pyz").write_bytes(host.probes)
    for place in ("/dev/shm/arena-leftover", "/dev/shm/arena-lure"):
        Path(place).write_text(host.stem + "shared memory file")
        Path(place).chmod(0o644)
    argv = (str(weaker.SYSTEM_PYTHON), "-I", str(host.folder / "probes.pyz"))
    uid = stage.CONTROL_UID if os.geteuid() == 0 else None
    fd = os.dup(host.held)
    try:
        running = weaker.started(weaker.Weak(argv, {"PATH": "/usr/bin:/bin", "ARENA_LURE_KEY": lure}, (fd,), uid), plan)
        said, complaint = running.communicate(timeout=LIMIT_S)
    finally:
        for place in ("/dev/shm/arena-leftover", "/dev/shm/arena-lure"):
            Path(place).unlink()
    return outcomes(said) or dict.fromkeys(plan["probes"], ("broken", complaint.decode(errors="replace")[-300:]))
