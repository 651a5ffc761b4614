"""What the sandbox costs on this machine: start-up with its processor time, kill and freeze, each 50 times in turn; how far 50
sessions run over their budget; and how long it takes to end a fork bomb. `--only starts` and its like take one of these.

Docker sandboxes are measured beside the others where an engine answers: eval "$(scripts/dockerd)".
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from arena import catalog, paths
from arena.agents import session
from arena.agents.launch import resolve_launch
from arena.agents.run_spec import RunSpec, TimeLimits
from arena.agents.select import SelectedModel
from arena.gateway.network import Network
from arena.results import run_folder
from arena.sandboxes import Limits, Sandbox, SandboxSpec, docker, native
from arena.sandboxes.backends import backend
from arena.sandboxes.bwrap import find_bwrap
from arena.sandboxes.limits import limits_for
from arena.schema import Cell, Harness, Model
from arena.system import process

RUNS = 50
BUDGET_S, GRACE_S = 0.3, 0.1
BOMBS, BOMB_RUNS, BOMB_S = (256, 1024, 2048), 5, 2.0


def milliseconds(work: Callable[[], object]) -> float:
    """Time of one call."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


@functools.cache
def proven_backend(name: str = "bwrap") -> Sandbox:
    """A backend that has passed its test once: the test is a sandbox of its own."""
    return backend(name)


def to_end(spec: SandboxSpec, name: str = "bwrap") -> None:
    """One sandbox from start to proven end."""
    with proven_backend(name).run(spec) as running:
        running.wait()


def processor_ms() -> float:
    """Processor time of this process and of its ended children."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used) * 1e3


def in_python(work: Callable[[], object]) -> None:
    """With the Python launcher and process 1 in the place of the compiled ones."""
    os.environ[native.SWITCH] = "0"
    try:
        work()
    finally:
        del os.environ[native.SWITCH]


def starts(workspace: Path) -> dict[str, list[float]]:
    """Start-up times and processor times, one of each kind in turn, so that a busy moment of the machine falls on all alike."""
    agent = SandboxSpec("agent", ("true",), workspace=workspace, limits=limits_for("agent"))
    worker = SandboxSpec("worker", ("true",), limits=limits_for("worker"))
    kinds: dict[str, Callable[[], object]] = {
        "true": lambda: process.run(["true"], limit_s=60),
        "bwrap --ro-bind / / true": lambda: process.run([find_bwrap(), "--ro-bind", "/", "/", "true"], limit_s=60),
        "python -I -S -c pass": lambda: process.run([sys.executable, "-I", "-S", "-c", "pass"], limit_s=60),
        "arena worker sandbox, true": lambda: to_end(worker),
        "arena agent sandbox, true": lambda: to_end(agent),
        "in Python: worker": lambda: in_python(lambda: to_end(worker)),
        "in Python: agent": lambda: in_python(lambda: to_end(agent)),
    }
    if docker.missing() is None:
        kinds["docker worker sandbox, true"] = lambda: to_end(worker, "docker")
        kinds["docker agent sandbox, true"] = lambda: to_end(agent, "docker")
    samples: dict[str, list[float]] = {name + what: [] for name in kinds for what in ("", ": processor")}
    for _ in range(RUNS):
        for name, work in kinds.items():
            before = processor_ms()
            samples[name].append(milliseconds(work))
            samples[f"{name}: processor"].append(processor_ms() - before)
    return samples


def ends() -> dict[str, list[float]]:
    """Kill of a sandbox with a busy process and a daemon, and the round trips of the freeze socket."""
    samples: dict[str, list[float]] = {"kill": [], "freeze": [], "cpu_ns while frozen": [], "resume": []}
    for _ in range(RUNS):
        with proven_backend().run(
            SandboxSpec("worker", ("sh", "-c", "trap '' TERM; (setsid sleep 60 &); echo; while :; do :; done"))
        ) as running:
            running.stdout.readline()
            time.sleep(0.02)
            samples["freeze"].append(milliseconds(running.freeze))
            samples["cpu_ns while frozen"].append(milliseconds(running.cpu_ns))
            samples["resume"].append(milliseconds(running.resume))
            samples["kill"].append(milliseconds(running.kill))
    return samples


def overshoots(root: Path) -> dict[str, list[float]]:
    """From the end of the budget and the grace to an empty sandbox, of an agent and its daemon that ignore every signal."""
    stubborn = "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &); while :; do sleep 1; done"
    harness = Harness(schema_version=1, name="stubborn", title="", command=("sh", "-c", stubborn), models={"m": Model()})
    cell = Cell(
        problem="none",
        problem_version=1,
        problem_digest="0",
        harness="stubborn",
        harness_digest="0",
        model="m",
        hardware="cpu",
        budget_s=BUDGET_S,
    )
    selected = SelectedModel(harness, "m", Model(), "")
    spec = RunSpec(
        selected=selected,
        launch=resolve_launch(selected, paths.harnesses()),
        problem=catalog.problem("canary", paths.canary().parent),
        hardware=catalog.hardware("cpu"),
        gpu=0,
        times=TimeLimits(BUDGET_S, GRACE_S),
        sandbox_name="bwrap",
        sandbox=proven_backend(),
        network=Network(),
        access=None,
    )
    samples = []
    for _ in range(RUNS):
        with run_folder.create(cell, manifest={}, root=root) as run:
            played = session.play(spec, run, "").session
        samples.append((played.overshoot_s - GRACE_S) * 1e3)
    return {"over budget and grace": samples}


def bombs() -> dict[str, list[float]]:
    """Kill of a sandbox in which that many processes fork as fast as they can, and ignore SIGTERM."""
    program = "import os, signal\nsignal.signal(15, 1)\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    samples: dict[str, list[float]] = {}
    for count in BOMBS:
        for _ in range(BOMB_RUNS):
            with proven_backend().run(SandboxSpec("agent", ("python", "-c", program), limits=Limits(processes=count))) as running:
                time.sleep(BOMB_S)
                samples.setdefault(f"kill of {count} that fork", []).append(milliseconds(running.kill))
    return samples


def rows(samples: dict[str, list[float]], unit: str | None) -> list[str]:
    """A table; with `unit`, the name of a row, the medians also as multiples of that row's."""
    lines = []
    for name, times in samples.items():
        ratio = "" if unit is None else f"{statistics.median(times) / statistics.median(samples[unit]):8.1f} x"
        lines.append(f"{name:40}{statistics.median(times):9.2f}{min(times):9.2f}{max(times):9.2f}{ratio}")
    return lines


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("starts", "ends", "overshoots", "bombs"))
    only = parser.parse_args().only
    heading = f"{'ms, ' + str(RUNS) + ' runs each':40}{'median':>9}{'min':>9}{'max':>9}"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as root:
        to_end(SandboxSpec("worker", ("true",)))  # looks up packages and tests the machine once
        parts: dict[str, Callable[[], list[str]]] = {
            "starts": lambda: rows(starts(Path(folder)), "bwrap --ro-bind / / true"),
            "ends": lambda: rows(ends(), None),
            "overshoots": lambda: rows(overshoots(Path(root)), None),
            "bombs": lambda: rows(bombs(), None),
        }
        lines = [line for name, part in parts.items() if only in (None, name) for line in part()]
    sys.stdout.write("\n".join([heading, *lines, ""]))


if __name__ == "__main__":
    main()
