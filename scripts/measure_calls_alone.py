"""Measure whose the error of a call alone is, on a GPU: `python scripts/measure_calls_alone.py --hardware h100-sxm`.

A call alone stands on two changes of the GPU's context, of some 290 us, and its time is known to about 1 us. Each of several
workers makes the judge's own calls alone twice, before it loads the problem's oracle, and then calls of the oracle in several
rounds. In each round every shape is placed and captured anew; in every second round its buffers are mapped anew, too. A further
worker without a submission (`twin`) makes the judge's own calls before each round.

Prints how far the times lie apart, in us: between processes, between rounds of one process, and between batches of one round; and
how what was measured before loading goes with what was measured after. Adds each round to `--json FILE` at once. Rounds that the
file already holds count too: `--processes 0` prints its tables again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from arena import catalog, paths
from arena.errors import ArenaError
from arena.judge import buffers, evaluation, problem_code, timing, worker_client
from arena.judge.context import ScoringContext, Stopwatch
from arena.judge.device.detect import open_device
from arena.judge.overhead import measure_overhead
from arena.judge.problem_code import Shape
from arena.judge.sampling import GPU
from arena.judge.score_math import trimmed_mean
from arena.judge.sets import Seeds
from arena.judge.worker_client import Worker
from arena.sandboxes.backends import backend
from arena.submission import collect

TOTAL_S = 3600.0


@dataclass(frozen=True)
class Round:
    """One round of one process, in us, a number for each shape."""

    process: int
    number: int
    mapped_anew: bool
    own_us: list[float]
    """The judge's own part before the oracle was loaded, first time."""
    own_again_us: list[float]
    twin_us: list[float]
    """The same in the worker without a submission, just before this round."""
    batches_us: list[list[float]]
    """Calls of the oracle alone, the judge's part included: the trimmed mean of each batch."""
    at_s: float

    def mean_us(self, shape: int) -> float:
        """Of all batches of a shape."""
        return statistics.fmean(self.batches_us[shape])


def own_us(context: ScoringContext, worker: Worker, shapes: tuple[Shape, ...]) -> list[float]:
    """The judge's own part of a call alone, in a worker without a submission."""
    buffers.reserve_for(context, worker, [(shape, context.most_calls(shape)) for shape in shapes])
    found = [measure_overhead(context, worker, shape).alone_s["graph"] * 1e6 for shape in shapes]
    buffers.release(context, worker)
    worker.freeze()
    return found


def batches_us(context: ScoringContext, worker: Worker, shape: Shape) -> list[float]:
    """Batches of the oracle's calls alone, after placing and capturing it anew."""
    sets = buffers.place(context, worker, shape, "public", context.most_calls(shape))
    timing._warm_up(context, worker, sets, shape, "graph")
    batches = [timing._alone(context, worker, sets, shape, "graph") for _ in range(context.sampling.alone_windows)]
    return [trimmed_mean([window.elapsed_s * 1e6 for window, _ in batch]) for batch in batches]


def measured(options: argparse.Namespace) -> list[Round]:
    """All rounds of all processes."""
    problem, hardware = catalog.problem(options.problem), catalog.hardware(options.hardware)
    oracle = catalog.solutions(paths.problems() / problem.name, hardware.profile)["oracle"]
    submission = collect(oracle.parent, oracle.name)
    shapes, found = problem.shapes["gpu"], list[Round]()
    with open_device(hardware, options.gpu) as device, ExitStack() as stack:
        code = problem_code.load(problem, hardware.profile)
        sampling = replace(GPU, cold_bytes=device.sampling.cold_bytes, processes=options.processes, alone_windows=options.batches)
        context = ScoringContext(problem, code, device.record, device.memory, sampling, Seeds(), Stopwatch())
        start = partial(worker_client.start, submission, sandbox=backend(), logs=None, total_limit_s=TOTAL_S)
        start = partial(start, cpus=device.cpus, gpu=device.gpu, env=device.env, absent=problem.absent_libraries)
        workers = evaluation._start_workers(context, start, stack)
        twin = stack.enter_context(start())
        for worker in (twin, *(worker for _, worker in workers)):
            worker.wait_until_ready(context.memory)
        first, second = ([own_us(context, worker, shapes) for _, worker in workers] for _ in range(2))
        evaluation._build(context, [(worker, shapes) for _, worker in workers], None, lambda text: None)
        for process, (worker_stack, worker) in enumerate(workers):
            with worker_stack:
                for number in range(options.rounds):
                    twin.resume()
                    beside = own_us(context, twin, shapes)
                    mapped_anew = number % 2 == 1
                    if mapped_anew:
                        buffers.release(context, worker)
                    buffers.reserve_for(context, worker, [(shape, context.most_calls(shape)) for shape in shapes])
                    times = [batches_us(context, worker, shape) for shape in shapes]
                    worker.freeze()
                    mine = (first[process], second[process], beside, times, time.time())
                    found.append(Round(process, number, mapped_anew, *mine))
                    print(
                        f"process {process}, round {number}: {[round(statistics.fmean(each), 1) for each in times]}",
                        file=sys.stderr,
                    )
                    if options.json:
                        with options.json.open("a") as file:
                            file.write(json.dumps(asdict(found[-1])) + "\n")
    return found


def deviation(groups: list[list[float]]) -> float:
    """The standard deviation within groups, pooled; 0 where each has one member."""
    squares = [(each - statistics.fmean(group)) ** 2 for group in groups for each in group]
    freedom = sum(len(group) - 1 for group in groups)
    return (sum(squares) / freedom) ** 0.5 if freedom else 0.0


def correlation(rounds: list[Round], other: str) -> float:
    """Of calls alone with `own_us`, `own_again_us` or `twin_us`, over all rounds and shapes, each less its shape's mean."""
    pairs = list[tuple[float, float]]()
    for shape in range(len(rounds[0].own_us)):
        mine, others = [each.mean_us(shape) for each in rounds], [getattr(each, other)[shape] for each in rounds]
        pairs += zip(
            (one - statistics.fmean(mine) for one in mine), (one - statistics.fmean(others) for one in others), strict=True
        )
    return statistics.correlation(*zip(*pairs, strict=True))


def tables(rounds: list[Round]) -> str:
    """Markdown: standard deviations by shape, and correlations over all."""
    lines = [
        "| shape | us | processes apart | rounds of one process | batches of one round | own part, processes apart |",
        "|---|---|---|---|---|---|",
    ]
    processes = sorted({each.process for each in rounds})
    by_process = [[each for each in rounds if each.process == process] for process in processes]
    for shape in range(len(rounds[0].own_us)):
        means = [statistics.fmean(each.mean_us(shape) for each in of_one) for of_one in by_process]
        apart = [
            deviation([means]),
            deviation([[each.mean_us(shape) for each in of_one] for of_one in by_process]),
            deviation([each.batches_us[shape] for each in rounds]),
            deviation([[of_one[0].own_us[shape] for of_one in by_process]]),
        ]
        cells = " | ".join(f"{each:.2f}" for each in apart)
        call_us = statistics.fmean(means) - statistics.fmean(of_one[0].own_us[shape] for of_one in by_process)
        lines.append(f"| {shape} | {call_us:.1f} | {cells} |")
    found = {other: correlation(rounds, other) for other in ("own_us", "own_again_us", "twin_us")}
    lines += ["", "Correlation of calls alone with: " + ", ".join(f"{name} {value:.2f}" for name, value in found.items())]
    same = [[each for each in of_one if not each.mapped_anew] for of_one in by_process]
    again = [[each.mean_us(shape) for each in of_one] for of_one in same for shape in range(len(rounds[0].own_us))]
    lines.append(f"Rounds of one process in the same buffers: {deviation(again):.2f} us apart")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hardware", required=True)
    parser.add_argument("--problem", default="fp8_gemm")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--batches", type=int, default=2, help="batches of calls alone of each shape in each round")
    parser.add_argument("--gpu", type=int, default=0, help="number of the GPU")
    parser.add_argument("--json", type=Path, help="file that every round is added to")
    options = parser.parse_args()
    kept = options.json.read_text().splitlines() if options.json and options.json.exists() else []
    rounds = [Round(**json.loads(line)) for line in kept]
    try:
        rounds += measured(options) if options.processes else []
    except ArenaError as error:
        sys.exit(str(error))
    print(tables(rounds) if rounds else "no round: give --processes, or a --json FILE that holds some")


if __name__ == "__main__":
    main()
