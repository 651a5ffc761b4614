"""Positive controls: run the probes in weakened sandboxes, where they must open."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from arena.sandboxes import SandboxSpec
from escape import host_namespaces, weakened
from escape.inside import common
from escape.lures import LIMIT_S, LIMITS, MEMORY_BYTES, PROBES_INSIDE, Host, Outcomes
from escape.sandboxed import checked_on_host, on_a_terminal, outcomes, plan_of


def run_controls(host: Host) -> dict[str, tuple[str, str, str]]:
    """Every probe with a positive control, in its weakened sandbox: probe -> (variant, state, detail)."""
    found: dict[str, tuple[str, str, str]] = {}
    for variant in weakened.VARIANTS:
        wanted = [probe.name for probe in common.PROBES if probe.opens == variant]
        batches = [[probe.name for probe in common.PROBES if probe.opens == variant and not probe.alone]]
        batches += [[probe.name] for probe in common.PROBES if probe.opens == variant and probe.alone]
        reason = unavailable(host, variant)
        for batch in filter(None, batches):
            reported = {} if reason else run_weakened(host, variant, batch)
            for name in batch:
                state, detail = reported.get(name, ("untried", reason) if reason else ("broken", "its sandbox ended before it"))
                if not reason:
                    state, detail = checked_on_host(host, name, state, detail)
                found[name] = (variant, state, detail)
        assert set(wanted) <= set(found)
    return found


def unavailable(host: Host, variant: str) -> str:
    """Why that variant cannot run without harm; empty when it can."""
    if (variant == "net" and not host.isolated) or (variant in ("root", "pid") and os.geteuid() != 0):
        return "only root can try it without harm: in namespaces of the suite's own, as a user that runs nothing else"
    if not weakened.SYSTEM_PYTHON.exists():
        return f"no {weakened.SYSTEM_PYTHON}"
    return ""


def run_weakened(host: Host, variant: str, probes: list[str]) -> Outcomes:
    """Run the probes in that variant."""
    limited: dict[str, int | None] = {"process_limit": None, "memory_bytes": None}
    if variant == "unlimited":
        limited = {"process_limit": LIMITS.processes, "memory_bytes": MEMORY_BYTES}
    plan = plan_of(host, "agent", variant, probes, pinned=True, **limited)
    lure = os.environ["ARENA_LURE_KEY"]
    if variant in ("outside", "shadowed"):
        return run_without_sandbox(host, plan, lure)
    spec = SandboxSpec("agent", ("python", "-I", PROBES_INSIDE), workspace=host.folder / "control", limits=LIMITS,
              files={PROBES_INSIDE: host.probes, "/workspace/check.py": b"# given\n"})  # fmt: skip
    sandbox = weakened.build(variant, spec, lure)
    if variant == "terminal":
        name = probes[0]
        outcome = on_a_terminal(
            lambda: outcomes(weakened.start(sandbox, plan, own_session=False).communicate()[0]).get(
                name, ("broken", "it reported nothing")
            )
        )
        return {name: outcome}
    running = weakened.start(sandbox, plan)
    output, errors = running.communicate(timeout=LIMIT_S)
    if not output:
        return dict.fromkeys(probes, ("broken", errors.decode(errors="replace")[-300:]))
    return outcomes(output)


def run_without_sandbox(host: Host, plan: dict[str, Any], lure: str) -> Outcomes:
    """Run probes as a plain user without any sandbox."""
    (host.folder / "probes.pyz").write_bytes(host.probes)
    for place in ("/dev/shm/arena-leftover", "/dev/shm/arena-lure"):
        Path(place).write_text(host.stem + "shared memory file")
        Path(place).chmod(0o644)
    argv = (str(weakened.SYSTEM_PYTHON), "-I", str(host.folder / "probes.pyz"))
    uid = host_namespaces.CONTROL_UID if os.geteuid() == 0 else None
    fd = os.dup(host.held)
    try:
        unsandboxed = weakened.WeakenedSandbox(argv, {"PATH": "/usr/bin:/bin", "ARENA_LURE_KEY": lure}, (fd,), uid)
        running = weakened.start(unsandboxed, plan)
        output, errors = running.communicate(timeout=LIMIT_S)
    finally:
        for place in ("/dev/shm/arena-leftover", "/dev/shm/arena-lure"):
            Path(place).unlink()
    return outcomes(output) or dict.fromkeys(plan["probes"], ("broken", errors.decode(errors="replace")[-300:]))
