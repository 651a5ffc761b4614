"""What the sandbox costs on this machine: start-up, kill and freeze, each 50 times in turn; how far 50 sessions run over their
budget; and how long it takes to end a fork bomb. Needs arena installed.

Docker sandboxes are measured beside the others where an engine answers: eval "$(scripts/dockerd)".
"""

from __future__ import annotations

import functools
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
from arena.sandboxes import Limits, Sandbox, SandboxSpec, docker
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


def starts(workspace: Path) -> dict[str, list[float]]:
    """Start-up times, one of each kind in turn, so that a busy moment of the machine falls on all alike."""
    kinds: dict[str, Callable[[], object]] = {
        "true": lambda: process.run(["true"], limit_s=60),
        "bwrap --ro-bind / / true": lambda: process.run([find_bwrap(), "--ro-bind", "/", "/", "true"], limit_s=60),
        "python -I -S -c pass": lambda: process.run([sys.executable, "-I", "-S", "-c", "pass"], limit_s=60),
        "arena worker sandbox, true": lambda: to_end(SandboxSpec("worker", ("true",), limits=limits_for("worker"))),
        "arena agent sandbox, true": lambda: to_end(
            SandboxSpec("agent", ("true",), workspace=workspace, limits=limits_for("agent"))
        ),
    }
    if docker.missing() is None:
        kinds["docker worker sandbox, true"] = lambda: to_end(
            SandboxSpec("worker", ("true",), limits=limits_for("worker")), "docker"
        )
        kinds["docker agent sandbox, true"] = lambda: to_end(
            SandboxSpec("agent", ("true",), workspace=workspace, limits=limits_for("agent")), "docker"
        )
    samples: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(RUNS):
        for name, work in kinds.items():
            samples[name].append(milliseconds(work))
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
        lines.append(f"{name:28}{statistics.median(times):9.2f}{min(times):9.2f}{max(times):9.2f}{ratio}")
    return lines


def main() -> None:
    """Print the tables."""
    heading = f"{'ms, ' + str(RUNS) + ' runs each':28}{'median':>9}{'min':>9}{'max':>9}"
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as root:
        to_end(SandboxSpec("worker", ("true",)))  # looks up packages and tests the machine once
        lines = [heading, *rows(starts(Path(folder)), "bwrap --ro-bind / / true"), *rows(ends(), None)]
        lines += [*rows(overshoots(Path(root)), None), *rows(bombs(), None), ""]
    sys.stdout.write("\n".join(lines))


if __name__ == "__main__":
    main()
