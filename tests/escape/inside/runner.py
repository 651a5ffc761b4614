"""Run probes, each in a process of its own, and print one JSON line for each: `python probes.pyz < plan`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback

from . import calls, files, init, namespaces, network, privileges, processes, resources, writing  # noqa: F401  each registers its probes
from .common import PLAN, PROBES, REFUSALS, Open, Probe, Untried
from .ipc import plant

LIMIT_S = 8.0


def outcome(probe: Probe) -> tuple[str, str]:
    """(held, open, untried or broken; a detail)."""
    PLAN["also"] = probe.also
    try:
        return "held", probe.work() or "nothing reached"
    except Open as finding:
        return "open", str(finding)
    except Untried as reason:
        return "untried", str(reason)
    except OSError as error:
        if error.errno in REFUSALS or error.errno in probe.also:
            return "held", os.strerror(error.errno)
        return "broken", traceback.format_exc(limit=-2)
    except Exception:
        return "broken", traceback.format_exc(limit=-2)


def run_probe(probe: Probe) -> tuple[str, str]:
    """The outcome, from a child process, which the probe may end."""
    reading, report = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.write(report, json.dumps(outcome(probe)).encode()[:60_000])
        os._exit(0)
    os.close(report)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    answer = b""
    while piece := os.read(reading, 1 << 16):
        answer += piece
        if answer.endswith(b"]"):
            break  # a process that it left behind may hold the pipe open
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if answer:
        state, detail = json.loads(answer)
        return state, detail
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number == signal.SIGKILL:
        return "broken", f"no end within {LIMIT_S:.0f} s"
    if number == signal.SIGSYS:
        return "held", "the filter ended its process"
    return "broken", f"its process was ended by signal {number}"


def main() -> None:
    """Run the probes that the plan names, in the suite's order."""
    PLAN.update(json.load(sys.stdin))
    if PLAN.get("plant"):
        plant()
    wanted = set(PLAN["probes"])
    for probe in PROBES:
        if probe.name in wanted:
            start = time.monotonic()
            state, detail = run_probe(probe)
            line = {"probe": probe.name, "state": state, "detail": detail, "seconds": round(time.monotonic() - start, 3)}
            print(json.dumps(line), flush=True)
    print(json.dumps({"end": True}), flush=True)
