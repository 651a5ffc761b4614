"""Score one solution alone, beside busy sandboxes, beside frozen ones, and after a wave, in turn: `... [ROUNDS] [NEIGHBOURS]`.

The neighbours are agents' sandboxes that compute without pause. Prints each fraction, and per way the median and the spread. On a
GPU the neighbours use no GPU: they are what compiling agents are to the judge.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from arena import paths
from arena.sandboxes import RunningSandbox, SandboxSpec, bwrap
from arena.sandboxes.limits import limits_for

BUSY = "while True:\n    sum(range(2000)); bytes(bytearray(1 << 20))\n"
WAYS = ("alone", "busy", "frozen", "wave")


@contextmanager
def neighbours(count: int) -> Iterator[list[RunningSandbox]]:
    """So many busy agents' sandboxes."""
    limits = limits_for("agent", parallel=count + 1)
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            spec = SandboxSpec("agent", ("python", "-c", BUSY), workspace=folder, limits=limits)
            made.append(stack.enter_context(bwrap.run(spec)))
        yield made


def score(problem: str, hardware: str) -> float:
    """The fraction of the problem's oracle. A score that does not pass ends the measurement."""
    name = "oracle.py" if hardware == "cpu" else "oracle_gpu.py"
    folder = paths.problems() / problem / "solutions"
    file = folder / name if (folder / name).exists() else folder / "oracle.py"
    command = [sys.executable, "-m", "arena", "score", str(file), "--problem", problem, "--hardware", hardware, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    found = json.loads(done.stdout) if done.stdout else {}
    if found.get("verdict") != "passed":
        sys.exit(f"not passed: {done.stdout[-500:]}{done.stderr[-500:]}")
    return float(found["peak_fraction"])


def one(way: str, count: int, problem: str, hardware: str) -> float:
    """A score in that way."""
    if way == "alone":
        return score(problem, hardware)
    with neighbours(count) as made:
        if way == "wave":
            for each in made:
                each.kill()
        if way != "frozen":
            return score(problem, hardware)
        for each in made:
            each.freeze()
        found = score(problem, hardware)
        for each in made:
            each.resume()
        return found


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    problem, hardware = (sys.argv[3:] + ["paged_attention", "cpu"][len(sys.argv[3:]) :])[:2]
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in WAYS:
            found[way].append(one(way, count, problem, hardware))
            print(f"round {number + 1} {way:6} {found[way][-1]:.4f}", flush=True)
    for way, fractions in found.items():
        spread = (max(fractions) - min(fractions)) / statistics.median(fractions)
        print(f"| {way} | {statistics.median(fractions):.4f} | {100 * spread:.1f} % |")


if __name__ == "__main__":
    main()
