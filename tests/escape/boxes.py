"""The probes in real boxes, and what the host sees when these have ended."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import socket
from pathlib import Path
from typing import Any

from arena.sandboxes import MIB, RunningSandbox, bwrap
from escape.inside import attempt
from escape.lures import BRIDGE_PORT, LIMIT_S, LIMITS, MEMORY_BYTES, Found, Host


def outcomes(lines: bytes) -> Found:
    """What the runner printed."""
    told = [json.loads(line) for line in lines.splitlines() if line.startswith(b"{")]
    return {entry["probe"]: (entry["state"], entry["detail"]) for entry in told if "probe" in entry}


def plan_of(host: Host, profile: str, place: str, probes: list[str], **more: Any) -> dict[str, Any]:
    """The plan for one start."""
    inside = {"given": "/workspace/check.py", "writable": ["/tmp", "/home/agent"]}
    outside = {"given": str(host.folder / "scratch/given/check.py"), "writable": [str(host.folder / "scratch")],
               "neighbour_places": [str(host.folder / "neighbour")], "tmp_bytes": 4 * MIB, "shm_bytes": 4 * MIB}  # fmt: skip
    return host.plan | (outside if place in ("outside", "shadowed") else inside) | {"probes": probes, "place": place} | more


def in_force(running: RunningSandbox) -> dict[str, Any]:
    """What the probes must know about the limits of their box."""
    return {
        "process_limit": LIMITS.processes if "processes" in running.limits else None,
        "memory_bytes": MEMORY_BYTES if "memory" in running.limits else None,
    }


def profile_run(host: Host, profile: str, bridge: Path) -> Found:
    """Every probe in boxes of one profile: most share a box."""
    together = [probe.name for probe in attempt.PROBES if not probe.alone]
    cpus = frozenset({min(os.sched_getaffinity(0))}) if profile == "worker" else None
    found: Found = {}
    with bwrap.run(host.box(profile, {}, host.folder / "own", cpus=cpus)) as trial:
        limits = in_force(trial)
        trial.wait(20)
    host.plan |= limits | {"pinned": cpus is not None}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        bridged = {"bridges": {BRIDGE_PORT: bridge}} if profile == "agent" else {"pass_fds": (theirs.fileno(),)}
        more = {"bridge": BRIDGE_PORT} if profile == "agent" else {"passed": theirs.fileno()}
        plan = plan_of(host, profile, "full", together, **more)
        with bwrap.run(host.box(profile, plan, host.folder / "own", cpus=cpus, **bridged)) as running:
            said = running.stdout.read()
            complaint = running.stderr.read().decode(errors="replace")
            running.wait(LIMIT_S)
        found |= outcomes(said)
        for name in together:
            found.setdefault(name, ("broken", f"the box ended before it: {complaint[-400:]}"))
    for probe in attempt.PROBES:
        if probe.alone:
            found[probe.name] = alone(host, profile, probe.name)
    return found


def alone(host: Host, profile: str, name: str) -> tuple[str, str]:
    """One probe in a box of its own, and what the host sees afterwards."""
    if name == "calls.launchers_terminal":
        return on_a_terminal(lambda: boxed(host, profile, name))
    state, detail = boxed(host, profile, name)
    return after(host, name, state, detail)


def boxed(host: Host, profile: str, name: str) -> tuple[str, str]:
    """Run one probe in one full box."""
    with bwrap.run(host.box(profile, plan_of(host, profile, "full", [name]), host.folder / "own")) as running:
        said = running.stdout.read()
        complaint = running.stderr.read().decode(errors="replace")
        code = running.wait(20)
    return judged(name, outcomes(said), running.exceeded, f"code {code} {complaint[-300:]}")


def judged(name: str, told: Found, exceeded: tuple[str, ...], ended: str) -> tuple[str, str]:
    """What came of a probe in a box of its own: its own word, unless the box has met the limit that the probe is about."""
    state, detail = told.get(name, ("broken", f"the box ended before it had said anything: {ended}"))
    limit = next(probe.limit for probe in attempt.PROBES if probe.name == name)
    if state == "broken" and (met := [words for words in exceeded if limit and limit in words]):
        return "held", f"the box was ended: {'; '.join(met)}"
    return state, detail


def after(host: Host, name: str, state: str, detail: str) -> tuple[str, str]:
    """What counts for these is what the host sees when the box has ended."""
    if name == "processes.kill_everybody":
        if not host.alive():
            return "open", "a process of the host was killed"
        return "held", f"the host's process lives; {detail}"
    if name == "processes.daemon":
        found = [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if host.plan["daemon"].encode() in peek(path)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)
        return ("open", f"process {found[0]} lives on") if found else ("held", "gone with the box")
    return state, detail


def peek(path: Path) -> bytes:
    """A file of /proc that may vanish."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def on_a_terminal(work: Any) -> tuple[str, str]:
    """Do it in a process that has a controlling terminal."""
    reading, writing = os.pipe()
    child, master = pty.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        told = pipe.read()
    os.close(master)
    os.waitpid(child, 0)
    state, detail = json.loads(told) if told else ("broken", "its process ended without a word")
    return state, detail
