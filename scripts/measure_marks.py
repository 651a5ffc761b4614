"""Measure how steadily the host sees one call of another process begin and end on a GPU: `python scripts/measure_marks.py`.

Each of several processes has a stream that waits for a word in the host's memory, writes a second one, makes one call, and writes
a third. This process, whose kernels ran before, writes the first and notes when the other two come. So what it sees of a call
begins with the GPU's change to that process. Prints for each kind of call what it takes among others by CUDA's events, how much
longer the host sees it, and how far that lies apart (standard deviations in us): between processes, twice, and by how much a
process differs from itself (`again`). `wake` is from the first word to the second. `--json FILE` gets all numbers.

The calls are a spin, a copy, and the oracles of two problems on shapes given by number. Needs a GPU and torch; runs no sandbox.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arena import catalog, paths
from arena.judge import problem_code
from arena.judge.score_math import trimmed_mean

if TYPE_CHECKING:
    from torch.cuda import CUDAGraph

PAGE_BYTES, WORD_BYTES = 4096, 64
"""The page that both sides map; each of its three words has a line of its own: the gate, the beginning, the end."""
CASES = ("spin", "copy", "fp8_gemm:0", "fp8_gemm:3", "fp8_gemm:4", "paged_attention:0", "paged_attention:4")
LIMIT_S = 2.0
Row = dict[str, Any]


def calls(case: str) -> list[Callable[[], object]]:
    """Three calls of that kind, on memory of their own."""
    import torch

    if case == "spin":
        return [partial(torch.cuda._sleep, 200_000)] * 3
    if case == "copy":
        pairs = [(torch.randn(32 << 20, device="cuda"), torch.empty(32 << 20, device="cuda")) for _ in range(3)]
        return [partial(target.copy_, source) for source, target in pairs]
    name, index = case.split(":")
    problem, kit = catalog.problem(name), problem_code.kit("benchmark")
    shape = dict(problem.shapes["gpu"][int(index)])
    solution = kit.load_solution(paths.problems() / name / "solutions" / "oracle_gpu.py")
    code = problem_code.load(problem, "gpu")
    sets = [
        (*code.make_inputs(shape, seed, "public", "cuda"), *kit.output_buffers(problem.model_dump(), shape, "cuda"))
        for seed in range(3)
    ]
    return [partial(solution, *each) for each in sets]


def worker(pid: int, fd: int, pipe: Connection) -> None:
    """Obey: a name makes the graphs of a case, a number plays one call, None ends."""
    import torch
    from cuda.bindings import driver

    from arena.judge.worker import cuda_driver

    page = mmap.mmap(os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR), PAGE_BYTES)
    torch.zeros(1, device="cuda")
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    flags = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
    cuda_driver.call(driver.cuMemHostRegister, start, PAGE_BYTES, flags)
    gate, begin, end = (
        int(cuda_driver.call(driver.cuMemHostGetDevicePointer, start, 0)) + WORD_BYTES * number for number in range(3)
    )
    graphs: list[CUDAGraph] = []
    pipe.send("ready")
    while (order := pipe.recv()) is not None:
        if isinstance(order, str):
            graphs.clear()
            torch.cuda.empty_cache()
            graphs += [captured(call) for call in calls(order)]
            pipe.send(among_us(graphs))
            continue
        cuda_driver.wait_for_word(gate, order)
        cuda_driver.write_word(begin, order)
        graphs[0].replay()
        cuda_driver.write_word(end, order)
        pipe.send("queued")
        pipe.recv()
        torch.cuda.synchronize()
        pipe.send("over")


def captured(call: Callable[[], object]) -> CUDAGraph:
    """The call as a CUDA graph."""
    import torch

    call()
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def among_us(graphs: Sequence[CUDAGraph]) -> float:
    """What a call takes among others, by events around nine."""
    import torch

    found = []
    for _ in range(12):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(1_000_000)
        first.record()
        for graph in [*graphs] * 3:
            graph.replay()
        last.record()
        torch.cuda.synchronize()
        found.append(first.elapsed_time(last) * 1e3 / 3 / len(graphs))
    return statistics.median(found)


def seen_ns(words: memoryview, number: int, value: int) -> int:
    """When this word of the page has the value."""
    limit_ns = time.perf_counter_ns() + int(LIMIT_S * 1e9)
    while words[number * WORD_BYTES // 4] != value:
        if time.perf_counter_ns() > limit_ns:
            sys.exit(f"word {number} was not written within {LIMIT_S:.0f} s")
    return time.perf_counter_ns()


def apart(rows: Sequence[Row], what: str) -> str:
    """How far processes lie apart, in either round, and how far one lies from itself."""
    rounds = [[row[what] for row in rows if row["round"] == number] for number in (0, 1)]
    again = statistics.fmean(abs(one - other) for one, other in zip(*rounds, strict=True))
    return f"sd {' '.join(f'{statistics.stdev(each):.2f}' for each in rounds)} again {again:.2f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--calls", type=int, default=28, help="of each kind, in each process and round")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.processes < 2 or options.calls < 3:
        parser.error("distances need --processes 2 and --calls 3 at least")
    import torch
    from torch import multiprocessing

    junk = torch.zeros(1 << 26, device="cuda")
    cold, spawn, workers = torch.empty_like(junk), multiprocessing.get_context("spawn"), []
    for _ in range(options.processes):
        fd = os.memfd_create("words")
        os.ftruncate(fd, PAGE_BYTES)
        here, there = multiprocessing.Pipe()
        process = spawn.Process(target=worker, args=(os.getpid(), fd, there), daemon=True)
        process.start()
        there.close()
        workers.append((process, here, memoryview(mmap.mmap(fd, PAGE_BYTES)).cast("I")))
    for _, pipe, _ in workers:
        pipe.recv()
    every, number = list[Row](), 0
    for case in CASES:
        rows = list[Row]()
        for _, pipe, _ in workers:
            pipe.send(case)
        among = [pipe.recv() for _, pipe, _ in workers]
        for turn in range(2):
            for process_number, (_, pipe, words) in enumerate(workers):
                wakes, seen = [], []
                for _ in range(options.calls):
                    number += 1
                    pipe.send(number)
                    pipe.recv()
                    cold.copy_(junk)  # the GPU is in this process's context afterwards, and nothing is in its cache
                    cold.copy_(junk)
                    torch.cuda.synchronize()
                    time.sleep(0.3e-3)
                    opened_ns = time.perf_counter_ns()
                    words[0] = number
                    begin_ns, end_ns = seen_ns(words, 1, number), seen_ns(words, 2, number)
                    wakes.append((begin_ns - opened_ns) / 1e3)
                    seen.append((end_ns - begin_ns) / 1e3)
                    pipe.send("go on")
                    pipe.recv()
                both = [wake + one for wake, one in zip(wakes, seen, strict=True)]
                row = {"case": case, "process": process_number, "round": turn, "among": among[process_number]}
                rows.append(
                    row | {"call": trimmed_mean(seen[1:]), "wake": trimmed_mean(wakes[1:]), "both": trimmed_mean(both[1:])}
                )
        every += rows
        longer = statistics.fmean(row["call"] - row["among"] for row in rows)
        woken = statistics.fmean(row["wake"] for row in rows)
        alike = f"among {statistics.fmean(among):7.2f} sd {statistics.stdev(among):.2f}"
        print(f"{case:18} {alike} | seen {longer:+7.2f}, {apart(rows, 'call')}")
        print(f"{'':18} wake {woken:.1f}, {apart(rows, 'wake')} | with it {apart(rows, 'both')}")
    for process, pipe, _ in workers:
        pipe.send(None)
        process.join(10)
        process.kill()
    if options.json:
        options.json.write_text(json.dumps(every))


if __name__ == "__main__":
    main()
