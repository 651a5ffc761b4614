"""Time a problem's solutions and baselines without sandbox or judge: `python scripts/bench_solutions.py fp8_gemm ...`.

For authors of solutions: a first answer in seconds. Each solution runs in a process of its own. It is checked on one public input
set of every scored shape. It is timed over several sets, which on a GPU are together larger than its cache. Events time the
calls, in a CUDA graph where they can be captured (else marked `s` for stream). An answer outside the tolerance is marked `!`.
Prints a table; works on `--hardware cpu` too.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from arena import catalog, paths
from arena.judge import problem_code
from arena.judge.device.detect import open_device
from arena.judge.score_math import ceiling, peak_fraction
from arena.judge.verify import within_tolerance
from arena.results import baselines
from arena.schema import Device, Hardware, Problem

COLD_BYTES, MOST_SETS, REPEATS = 250_000_000, 64, 7
SPIN_CYCLES = 3_000_000
"""The GPU spins this long before the first event, so that no launch is late."""
LIMIT_S = 300

KIT = problem_code.kit("benchmark")
Call = Callable[[], object]
Solution = Callable[..., object]


def call_s(run: Call, calls: int, device: str) -> tuple[float, str]:
    """Seconds for one of the calls in `run`, and ` s` where they ran on a stream instead of in a graph."""
    if device == "cpu":
        return statistics.median(_wall_s(run) for _ in range(REPEATS)) / calls, ""
    mark = ""
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        run = graph.replay
    except RuntimeError:
        torch.cuda.synchronize()
        mark = " s"
    run()
    return statistics.median(_device_s(run) for _ in range(REPEATS)) / calls, mark


def _wall_s(run: Call) -> float:
    begin_s = time.perf_counter()
    run()
    return time.perf_counter() - begin_s


def _device_s(run: Call) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(SPIN_CYCLES)
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def shape_s(
    shape: Mapping[str, int], problem: Problem, code: problem_code.ProblemCode, solution: Solution, device: str
) -> tuple[float, str]:
    """Seconds of a call on one shape, and marks: `s` for calls on a stream, `!` for an answer outside the tolerance."""
    first = code.make_inputs(shape, 1, "public", device)
    refs = code.outputs(first)
    count = min(MOST_SETS, max(4, -(-COLD_BYTES // sum(tensor.nbytes for tensor in first))))
    inputs = [first, *(code.make_inputs(shape, seed, "public", device) for seed in range(2, count + 1))]
    outputs = [KIT.output_buffers(problem.model_dump(), shape, device) for _ in inputs]

    def run() -> None:
        KIT.call_all(solution, inputs, outputs)

    run()
    measured = code.measure(outputs[0], refs, first)
    wrong = not all(within_tolerance(errors, problem.tolerance) for _, errors, _ in measured)
    del refs
    took_s, mark = call_s(run, count, device)
    return took_s, mark + (" !" if wrong else "")


def row(problem: Problem, hardware: Hardware, device: Device, path: Path) -> str:
    """A line of the table: fractions of the ceiling by shape, and their geometric mean."""
    code = problem_code.load(problem, hardware.profile)
    solution, cells, fractions = KIT.load_solution(path), [], []
    for shape in problem.shapes[hardware.profile]:
        took_s, marks = shape_s(shape, problem, code, solution, "cuda" if hardware.profile == "gpu" else "cpu")
        fractions.append(ceiling(problem.flops(shape), problem.bytes(shape), device, code.rate).seconds / took_s)
        cells.append(f"{fractions[-1]:.3f}{marks}")
    return f"| {path.parent.name}/{path.stem} | {' | '.join(cells)} | {peak_fraction(fractions):.3f} |"


def files(problem: Problem, hardware: Hardware) -> Iterator[Path]:
    """The honest solutions and every baseline."""
    folder = paths.problems() / problem.name
    for name, path in catalog.solutions(folder, hardware.profile).items():
        if name in ("oracle", "naive"):
            yield path
    yield from catalog.baselines(folder, hardware.profile).values()


def main() -> None:
    """Print a table for each problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="+")
    parser.add_argument("--hardware", default="h200")
    parser.add_argument("--file", type=Path, help="time only this solution")
    options = parser.parse_args()
    hardware = catalog.hardware(options.hardware)
    for name in options.problems:
        problem = catalog.problem(name)
        if options.file:
            with open_device(hardware, 0) as device:
                ceilings = device.record
            print(row(problem, hardware, ceilings, options.file))
            continue
        shapes = [" ".join(map(str, shape.values())) for shape in problem.shapes[hardware.profile]]
        versions = ", ".join(" ".join(pair) for pair in baselines.versions(("torch", "triton")).items())
        print(f"\n**{name}** on {hardware.name}, {versions}\n")
        print("\n".join([f"| | {' | '.join(shapes)} | mean |", "|---" * (len(shapes) + 2) + "|"]), flush=True)
        for path in files(problem, hardware):
            command = [sys.executable, __file__, name, "--hardware", hardware.name, "--file", str(path)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
                error = [f"status {done.returncode}", *done.stderr.strip().splitlines()][-1]
                line = done.stdout.strip() or f"| {path.parent.name}/{path.stem} | {error} |"
            except subprocess.TimeoutExpired:
                line = f"| {path.parent.name}/{path.stem} | not done after {LIMIT_S} s |"
            print(line, flush=True)


if __name__ == "__main__":
    main()
