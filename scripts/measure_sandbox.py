"""What the wall costs on this machine: start-up, kill and freeze, each 50 times in turn. Needs arena installed."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from arena import process
from arena.sandboxes import Box, backend
from arena.sandboxes.start import program

RUNS = 50


def milliseconds(work: Callable[[], object]) -> float:
    """Time of one call."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def to_end(box: Box) -> None:
    """One box from start to proven end."""
    with backend().run(box) as running:
        running.wait()


def starts(workspace: Path) -> dict[str, list[float]]:
    """Start-up times, one of each kind in turn, so that a busy moment of the machine falls on all alike."""
    kinds: dict[str, Callable[[], object]] = {
        "true": lambda: process.run(["true"], limit_s=60),
        "bwrap --ro-bind / / true": lambda: process.run([program(), "--ro-bind", "/", "/", "true"], limit_s=60),
        "python -I -S -c pass": lambda: process.run([sys.executable, "-I", "-S", "-c", "pass"], limit_s=60),
        "arena worker box, true": lambda: to_end(Box("worker", ("true",))),
        "arena agent box, true": lambda: to_end(Box("agent", ("true",), workspace=workspace)),
    }
    samples: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(RUNS):
        for name, work in kinds.items():
            samples[name].append(milliseconds(work))
    return samples


def ends() -> dict[str, list[float]]:
    """Kill of a box with a busy process and a daemon, and the round trips of the freeze socket."""
    samples: dict[str, list[float]] = {"kill": [], "freeze": [], "cpu_ns while frozen": [], "thaw": []}
    for _ in range(RUNS):
        with backend().run(Box("worker", ("sh", "-c", "trap '' TERM; (setsid sleep 60 &); echo; while :; do :; done"))) as box:
            box.stdout.readline()
            time.sleep(0.02)
            samples["freeze"].append(milliseconds(box.freeze))
            samples["cpu_ns while frozen"].append(milliseconds(box.cpu_ns))
            samples["thaw"].append(milliseconds(box.thaw))
            samples["kill"].append(milliseconds(box.kill))
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
    with tempfile.TemporaryDirectory() as folder:
        to_end(Box("worker", ("true",)))  # looks up packages and tests the machine once
        sys.stdout.write("\n".join([heading, *rows(starts(Path(folder)), "bwrap --ro-bind / / true"), *rows(ends(), None), ""]))


if __name__ == "__main__":
    main()
