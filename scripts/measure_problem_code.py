"""Time what a problem's own code takes of a score: its inputs, its exact answer, and the comparison of outputs with that.

    python scripts/measure_problem_code.py [--problem NAME ...] [--against FOLDER]

On the first GPU, or on the CPU without one. Milliseconds for each scored shape, best of three series of four, with the wait for
the GPU. `--against` is the folder `problems` of another checkout: its code is timed in the same run, in turn with this one's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from arena import catalog, paths
from arena.judge import problem_code
from arena.judge.context import shape_text
from arena.judge.problem_code import Inputs, ProblemCode, Shape
from arena.schema import Profile

SERIES, CALLS = 3, 4
PARTS = ("inputs", "exact answer", "comparison")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", nargs="*", help="all without it")
    parser.add_argument("--against", type=Path, help="folder `problems` of another checkout")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    profile: Profile = "gpu" if device == "cuda" else "cpu"
    folders = [*([options.against] if options.against else []), paths.problems()]
    print(f"{torch.cuda.get_device_name() if device == 'cuda' else 'CPU'}, torch {torch.__version__}\n")
    print(f"| problem | shape | {' | '.join(PARTS)} |\n|{'---|' * (2 + len(PARTS))}")
    for name in options.problem or catalog.problems():
        problem = catalog.problem(name)
        for shape in problem.shapes[profile]:
            dtypes = [getattr(torch, output.dtype) for output in problem.outputs]
            timed = [parts(folder, name, profile, shape, dtypes, device) for folder in folders]
            columns = [", ".join(f"{each[part]:.1f}" for each in timed) for part in PARTS]
            print(f"| {name} | {shape_text(shape)} | {' | '.join(columns)} |", flush=True)


def parts(folder: Path, name: str, profile: Profile, shape: Shape, dtypes: list[torch.dtype], device: str) -> dict[str, float]:
    """Milliseconds of each part."""
    code = load(folder, name, profile)
    made: Inputs = code.make_inputs(shape, 1, "public", device)
    exact = code.outputs(made)
    outputs = tuple(tensor.to(dtype) for tensor, dtype in zip(exact, dtypes, strict=True))
    seeds = iter(range(2, 1000))
    work: dict[str, Callable[[], object]] = {
        "inputs": lambda: code.make_inputs(shape, next(seeds), "public", device),
        "exact answer": partial(code.outputs, made),
        "comparison": partial(code.measure, outputs, exact, made),
    }
    return {part: milliseconds(call) for part, call in work.items()}


def load(folder: Path, name: str, profile: Profile) -> ProblemCode:
    """A problem's code, with the comparison of the same folder."""
    found = paths.problems
    paths.problems = lambda: folder
    try:
        return problem_code.load(catalog.problem(name), profile, folder / name)
    finally:
        paths.problems = found


def milliseconds(call: Callable[[], object]) -> float:
    """Of one call, the best of some series: the first is left out, since it loads kernels."""

    def series() -> float:
        begin_s = time.perf_counter()
        for _ in range(CALLS):
            call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return (time.perf_counter() - begin_s) / CALLS * 1e3

    series()
    return min(series() for _ in range(SERIES))


if __name__ == "__main__":
    main()
