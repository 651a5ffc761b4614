"""Which rows slow a call of `topk_bitonic` down: `python scripts/measure_topk_rows.py [FILE ...] [--shape 2] [--seeds 60]`.

Times solutions (the oracle, where no file is named) in turn on the same inputs, each call from a cold cache. First on timed sets:
how far calls on different sets lie apart. Then on ordinary rows with four of one stress class among them, and with four whose
winners come at every s-th place. Microseconds, on the first GPU or, without one, on the CPU.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from arena import catalog, paths
from arena.judge import problem_code
from arena.schema import Profile

NAME = "topk_bitonic"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PROFILE: Profile = "gpu" if DEVICE == "cuda" else "cpu"
COLD_BYTES, DELAY_CYCLES = 200 << 20, 400_000
REPEATS = 5
FIRST, AMONG = 5, 4
"""The first of the rows that are replaced, and how many are, or as many as there are rows from there on."""
Solution = Callable[[Tensor, Tensor, Tensor, Tensor], None]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--shape", type=int, default=2, help="number of the scored shape, from 0")
    parser.add_argument("--seeds", type=int, default=60, help="timed sets")
    options = parser.parse_args()
    folder = paths.problems() / NAME
    kit, reference = problem_code.kit("benchmark"), problem_code._module(folder / "reference.py", "measured_reference")
    files = options.files or [catalog.solutions(folder, PROFILE)["oracle"]]
    solutions: list[Solution] = [kit.load_solution(file) for file in files]
    shape = catalog.problem(NAME).shapes[PROFILE][options.shape]
    print(f"{torch.cuda.get_device_name() if DEVICE == 'cuda' else 'CPU'}, torch {torch.__version__}, {dict(shape)}\n")
    print(f"| rows | {' | '.join(file.stem for file in files)} |\n|{'---|' * (1 + len(files))}", flush=True)

    sets = [calls_us(solutions, *reference.make_inputs(shape, seed, device=DEVICE)) for seed in range(options.seeds)]
    for what, of in (
        ("mean", statistics.fmean),
        ("standard deviation", statistics.pstdev),
        ("median", statistics.median),
        ("most", max),
    ):
        show(f"timed sets, {what}", [of(column) for column in zip(*sets, strict=True)])
    for name, x in mixed(reference, shape):
        show(name, calls_us(solutions, x, reference.ranks(shape["k"], DEVICE)))


def show(name: str, times_us: Sequence[float]) -> None:
    """One line of the table."""
    print(f"| {name} | {' | '.join(f'{each:.1f}' for each in times_us)} |", flush=True)


def mixed(reference: ModuleType, shape: problem_code.Shape) -> list[tuple[str, Tensor]]:
    """Ordinary rows, with some others among them."""
    k = shape["k"]
    generator = torch.Generator(DEVICE).manual_seed(1)
    plain = torch.randn(shape["rows"], shape["n"], generator=generator, device=DEVICE)
    count = len(plain[FIRST:][:AMONG])
    found = [("ordinary", plain)]
    for name in reference.STRESS:
        places, values = reference.generators(5, DEVICE)
        rows = reference.draw(name, torch.randn(count, shape["n"], generator=values, device=DEVICE), k, places, values)
        found.append((name, with_rows(plain, rows)))
    step = 16
    while step <= shape["n"] // k:
        lifted = plain[FIRST:][:count] + reference.LIFT * (torch.arange(shape["n"], device=DEVICE) % step == 3)
        found.append((f"winners at every {step}th place", with_rows(plain, lifted)))
        step *= 2
    return found


def with_rows(plain: Tensor, rows: Tensor) -> Tensor:
    """A copy with these rows in the place of some."""
    x = plain.clone()
    x[FIRST:][: len(rows)] = rows
    return x


def calls_us(solutions: Sequence[Solution], x: Tensor, ranks: Tensor) -> list[float]:
    """Each solution's median on these inputs."""
    answer = (x.new_empty(len(x), len(ranks)), torch.empty(len(x), len(ranks), dtype=torch.int64, device=x.device))
    cold = torch.empty(COLD_BYTES, dtype=torch.uint8, device=x.device)
    found: list[list[float]] = [[] for _ in solutions]
    for _ in range(1 + REPEATS):  # the first may compile
        for solution, times in zip(solutions, found, strict=True):
            cold.fill_(1)
            times.append(call_us(partial(solution, x, ranks, *answer)))
    return [statistics.median(times[1:]) for times in found]


def call_us(call: Callable[[], None]) -> float:
    """What one call takes; on a GPU it is launched while the device is busy."""
    if DEVICE == "cpu":
        begin_s = time.perf_counter()
        call()
        return (time.perf_counter() - begin_s) * 1e6
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(DELAY_CYCLES)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


if __name__ == "__main__":
    main()
