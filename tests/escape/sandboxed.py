"""Run the probes in full sandboxes, and check on the host what they left when these have ended."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import socket
from pathlib import Path
from typing import Any

from arena.sandboxes import MIB, RunningSandbox, bwrap
from escape.inside import common
from escape.lures import BRIDGE_PORT, LIMIT_S, LIMITS, MEMORY_BYTES, Host, Outcomes


def outcomes(lines: bytes) -> Outcomes:
    """Outcomes that the runner printed."""
    entries = [json.loads(line) for line in lines.splitlines() if line.startswith(b"{")]
    return {entry["probe"]: (entry["state"], entry["detail"]) for entry in entries if "probe" in entry}


def plan_of(host: Host, profile: str, variant: str, probes: list[str], **more: Any) -> dict[str, Any]:
    """The plan for one run of probes."""
    inside = {"given": "/workspace/check.py", "writable": ["/tmp", "/home/agent"]}
    outside = {"given": str(host.folder / "scratch/given/check.py"), "writable": [str(host.folder / "scratch")],
               "neighbour_places": [str(host.folder / "neighbour")], "tmp_bytes": 4 * MIB, "shm_bytes": 4 * MIB}  # fmt: skip
    return host.plan | (outside if variant in ("outside", "shadowed") else inside) | {"probes": probes, "variant": variant} | more


def limits_in_force(running: RunningSandbox) -> dict[str, Any]:
    """What the probes must know about the limits of their sandbox."""
    return {
        "process_limit": LIMITS.processes if "processes" in running.limits else None,
        "memory_bytes": MEMORY_BYTES if "memory" in running.limits else None,
    }


def run_profile(host: Host, profile: str, bridge: Path) -> Outcomes:
    """Every probe in sandboxes of one profile; most share a sandbox."""
    together = [probe.name for probe in common.PROBES if not probe.alone]
    cpus = frozenset({min(os.sched_getaffinity(0))}) if profile == "worker" else None
    found: Outcomes = {}
    with bwrap.run(host.spec(profile, {}, host.folder / "own", cpus=cpus)) as trial:
        limits = limits_in_force(trial)
        trial.wait(20)
    host.plan |= limits | {"pinned": cpus is not None}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        bridged = {"bridges": {BRIDGE_PORT: bridge}} if profile == "agent" else {"pass_fds": (theirs.fileno(),)}
        more = {"bridge": BRIDGE_PORT} if profile == "agent" else {"passed": theirs.fileno()}
        plan = plan_of(host, profile, "full", together, **more)
        with bwrap.run(host.spec(profile, plan, host.folder / "own", cpus=cpus, **bridged)) as running:
            output = running.stdout.read()
            errors = running.stderr.read().decode(errors="replace")
            running.wait(LIMIT_S)
        found |= outcomes(output)
        for name in together:
            found.setdefault(name, ("broken", f"the sandbox ended before it: {errors[-400:]}"))
    for probe in common.PROBES:
        if probe.alone:
            found[probe.name] = run_alone(host, profile, probe.name)
    return found


def run_alone(host: Host, profile: str, name: str) -> tuple[str, str]:
    """Run one probe in a sandbox of its own, then check on the host."""
    if name == "calls.launchers_terminal":
        return on_a_terminal(lambda: run_one(host, profile, name))
    state, detail = run_one(host, profile, name)
    return checked_on_host(host, name, state, detail)


def run_one(host: Host, profile: str, name: str) -> tuple[str, str]:
    """Run one probe in one full sandbox."""
    with bwrap.run(host.spec(profile, plan_of(host, profile, "full", [name]), host.folder / "own")) as running:
        output = running.stdout.read()
        errors = running.stderr.read().decode(errors="replace")
        code = running.wait(20)
    return settled(name, outcomes(output), running.exceeded, f"code {code} {errors[-300:]}")


def settled(name: str, reported: Outcomes, exceeded: tuple[str, ...], ended: str) -> tuple[str, str]:
    """The outcome of a probe in a sandbox of its own: what it reported, or held if the sandbox met the probe's limit."""
    state, detail = reported.get(name, ("broken", f"the sandbox ended before the probe reported: {ended}"))
    limit = next(probe.limit for probe in common.PROBES if probe.name == name)
    if state == "broken" and (met := [words for words in exceeded if limit and limit in words]):
        return "held", f"the sandbox was ended: {'; '.join(met)}"
    return state, detail


def checked_on_host(host: Host, name: str, state: str, detail: str) -> tuple[str, str]:
    """The outcome after the check on the host, which decides for some probes when the sandbox has ended."""
    if name == "processes.kill_everybody":
        if not host.alive():
            return "open", "a process of the host was killed"
        return "held", f"the host's process lives; {detail}"
    if name == "processes.daemon":
        found = [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if host.plan["daemon"].encode() in peek(path)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)
        return ("open", f"process {found[0]} lives on") if found else ("held", "gone with the sandbox")
    return state, detail


def peek(path: Path) -> bytes:
    """A file of /proc that may vanish."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def on_a_terminal(work: Any) -> tuple[str, str]:
    """Run the work in a process that has a controlling terminal."""
    reading, writing = os.pipe()
    child, master = pty.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    os.close(master)
    os.waitpid(child, 0)
    state, detail = json.loads(answer) if answer else ("broken", "its process ended without an answer")
    return state, detail
