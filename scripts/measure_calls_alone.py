"""Measure whose the error of a call alone is, on a GPU: `python scripts/measure_calls_alone.py --hardware h100-sxm`.

A call alone stands on two changes of the GPU's context, of some 290 us, and its time is known to about 1 us. Each of several
workers makes the judge's own calls alone twice, before it loads the problem's oracle, and then calls of the oracle in several
rounds. In each round every shape is placed and captured anew; in every second round its buffers are mapped anew, too. A further
worker without a submission (`twin`) makes the judge's own calls before each round.

Prints how far the times lie apart, in us: between processes, between rounds of one process, and between batches of one round; and
how what was measured before loading goes with what was measured after. The judge's own part is in all of these times. Adds each
round to `--json FILE` at once, and counts rounds of the problem that are there already: `--processes 0` prints their tables.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from arena import catalog, paths
from arena.errors import ArenaError
from arena.judge import buffers, building, problem_code, timing, worker_client
from arena.judge.anchor import Anchor
from arena.judge.context import ScoringContext, Stopwatch, shape_text
from arena.judge.device.detect import open_device
from arena.judge.overhead import measure_overhead
from arena.judge.problem_code import Shape
from arena.judge.rejection import Rejection
from arena.judge.sampling import GPU
from arena.judge.score_math import trimmed_mean
from arena.judge.sets import Seeds, choose
from arena.judge.window import retried
from arena.judge.worker_client import Uncapturable, Worker
from arena.sandboxes.backends import backend
from arena.submission import collect

TOTAL_S = 3600.0


@dataclass(frozen=True)
class Round:
    """One round of one process, in us, a number for each shape."""

    problem: str
    card: str
    shapes: list[str]
    process: int
    """Unique in a file."""
    number: int
    mapping: int
    """Grows whenever the buffers are mapped anew."""
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
    alone = partial(timing._alone, context, worker, sets, shape, "graph")
    numbers = choose(sets.count, context.sampling.alone_windows)
    batches = [retried(partial(alone, number), timing.TIMING_TRIES) for number in numbers]
    return [trimmed_mean([window.elapsed_s * 1e6 for window, _ in batch]) for batch in batches]


def measured(options: argparse.Namespace, first_process: int) -> list[Round]:
    """All rounds of all processes, which are numbered from `first_process` on."""
    problem, hardware = catalog.problem(options.problem), catalog.hardware(options.hardware)
    oracle = catalog.solutions(paths.problems() / problem.name, hardware.profile)["oracle"]
    submission = collect(oracle.parent, oracle.name)
    shapes, found = problem.shapes["gpu"], list[Round]()
    names = [shape_text(shape) for shape in shapes]
    with open_device(hardware, options.gpu) as device, ExitStack() as stack:
        code = problem_code.load(problem, hardware.profile)
        sampling = replace(GPU, cold_bytes=device.sampling.cold_bytes, processes=options.processes, alone_windows=options.batches)
        context = ScoringContext(problem, code, device.record, device.memory, sampling, Seeds(), Stopwatch())
        start = partial(worker_client.start, submission, sandbox=backend(), logs=None, total_limit_s=TOTAL_S)
        start = partial(start, cpus=device.cpus, gpu=device.gpu, env=device.env, absent=problem.absent_libraries)
        workers = building.start_workers(context, start, stack)
        twin = stack.enter_context(start())
        for worker in (twin, *(own.worker for own in workers)):
            worker.wait_until_ready(context.memory)
        first, second = ([own_us(context, own.worker, shapes) for own in workers] for _ in range(2))
        building.build(context, [(own, shapes) for own in workers], None, lambda text: None)
        for index, own in enumerate(workers):
            process, mapping, worker = first_process + index, 0, own.worker
            with own:
                for number in range(options.rounds):
                    Anchor(device.anchor_gb_s, GPU.drift).settled_gb_s(wait=False)
                    twin.resume()
                    beside = own_us(context, twin, shapes)
                    if number % 2 == 1:
                        buffers.release(context, worker)
                        mapping += 1
                    buffers.reserve_for(context, worker, [(shape, context.most_calls(shape)) for shape in shapes])
                    times = [batches_us(context, worker, shape) for shape in shapes]
                    worker.freeze()
                    place = (problem.name, device.record.uuid or "", names, process, number, mapping)
                    found.append(Round(*place, first[index], second[index], beside, times, time.time()))
                    means = [round(statistics.fmean(each), 1) for each in times]
                    print(f"process {process}, round {number}: {means}", file=sys.stderr)
                    if options.json:
                        with options.json.open("a") as file:
                            file.write(json.dumps(asdict(found[-1])) + "\n")
    return found


def deviation(groups: list[list[float]]) -> float | None:
    """The standard deviation within groups, pooled; None where each has one member."""
    squares = [(each - statistics.fmean(group)) ** 2 for group in groups for each in group]
    freedom = sum(len(group) - 1 for group in groups)
    return (sum(squares) / freedom) ** 0.5 if freedom else None


def shown(deviation_us: float | None) -> str:
    """The number, or a dash."""
    return "-" if deviation_us is None else f"{deviation_us:.2f}"


def correlation(pairs: Sequence[tuple[float, float]]) -> str:
    """Of these pairs; a dash where one side is the same in all."""
    sides = list(zip(*pairs, strict=True))
    return f"{statistics.correlation(*sides):.2f}" if all(len({*side}) > 1 for side in sides) else "-"


def moved(rounds: list[Round], of: Callable[[Round, int], float]) -> list[float]:
    """What `of` gives for all rounds and shapes, less the mean of its shape."""
    found = list[float]()
    for shape in range(len(rounds[0].shapes)):
        values = [of(each, shape) for each in rounds]
        found += [value - statistics.fmean(values) for value in values]
    return found


def tables(rounds: list[Round]) -> str:
    """Markdown: standard deviations by shape, and correlations over all."""
    lines = [
        "| shape | us | processes apart | rounds of one process | batches of one round | own part, processes apart |",
        "|---|---|---|---|---|---|",
    ]
    by_process = [[each for each in rounds if each.process == process] for process in sorted({each.process for each in rounds})]
    for shape, name in enumerate(rounds[0].shapes):
        means = [statistics.fmean(each.mean_us(shape) for each in of_one) for of_one in by_process]
        apart = [
            deviation([means]),
            deviation([[each.mean_us(shape) for each in of_one] for of_one in by_process]),
            deviation([each.batches_us[shape] for each in rounds]),
            deviation([[of_one[0].own_us[shape] for of_one in by_process]]),
        ]
        cells = " | ".join(map(shown, apart))
        call_us = statistics.fmean(means) - statistics.fmean(of_one[0].own_us[shape] for of_one in by_process)
        lines.append(f"| {name} | {call_us:.1f} | {cells} |")
    alone, own = moved(rounds, Round.mean_us), moved(rounds, lambda each, shape: each.own_us[shape])
    own_again = moved(rounds, lambda each, shape: each.own_again_us[shape])
    twin = moved(rounds, lambda each, shape: each.twin_us[shape])
    pairs = {"alone, own": (alone, own), "own, own again": (own, own_again), "alone, twin": (alone, twin)}
    found = (f"{name} {correlation(list(zip(*both, strict=True)))}" for name, both in pairs.items())
    same = defaultdict[tuple[int, int, int], list[float]](list)
    for each in rounds:
        for shape in range(len(each.shapes)):
            same[each.process, each.mapping, shape].append(each.mean_us(shape))
    lines += ["", f"Correlations: {'; '.join(found)}"]
    lines.append(f"Rounds of one process in the same buffers: {shown(deviation(list(same.values())))} us apart")
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
    rounds = [each for each in (Round(**json.loads(line)) for line in kept) if each.problem == options.problem]
    if catalog.hardware(options.hardware).profile != "gpu":
        sys.exit(f"{options.hardware} has no calls alone: a CPU's clock has no change of context; name a GPU's hardware")
    try:
        rounds += measured(options, 1 + max((each.process for each in rounds), default=-1)) if options.processes else []
    except (ArenaError, Rejection, Uncapturable) as error:
        kept_too = f"; {options.json} holds the rounds before" if options.json else ""
        sys.exit(f"{type(error).__name__}: {error}{kept_too}")
    print(tables(rounds) if rounds else "no round: give --processes, or a --json FILE that holds some")


if __name__ == "__main__":
    main()
