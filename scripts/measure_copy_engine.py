"""Measure how steadily the GPU's copy engine sees another process's call end: `python scripts/measure_copy_engine.py`.

Each of several processes has a stream that waits at the judge's gate, makes one call, and reports it as done. In this process one
stream opens the gate and waits for that word, as the judge's does, which takes two changes of context. Beside it, from the gate's
opening on, a second stream copies the word into the host's memory again and again, with a sample of what `copy` writes, and
notes the time after each step.

Prints for each kind of call, in us: what it takes among others, when a copy first saw the word, and the mark in the stream that
waited, both from the opening on, and both also less what a short spin has in the same process. Each is the mean of the processes,
with their standard deviation. Needs a GPU and torch; runs no sandbox.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from cuda.bindings import driver

from arena.judge.score_math import trimmed_mean
from arena.judge.worker import cuda_driver

CASES = ("spin", "copy", "product", "long spin")
DATA_BYTES, MOVED_BYTES, JUNK_BYTES = 256 << 20, 64 << 20, 150 << 20
ROWS, WIDTH_BYTES = 16, 16
CHAIN = 16
LATE_S = 1.0
"""The stream starts after this in any case, should the driver wait for it while a window is queued."""
LIMIT_S = 5.0
"""For one call."""


def worker(gate_fd: int, data_fd: int) -> None:
    """Print what each call takes among others, then obey: a line with a case, the first number and how many."""
    gate = cuda_driver.Gate(cuda_driver.attach(gate_fd, cuda_driver.GATE_BYTES, 0))
    data = cuda_driver.attach(data_fd, DATA_BYTES, 0).tensor
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(a)
    calls: dict[str, Callable[[], object]] = {
        "spin": lambda: torch.cuda._sleep(4_000),
        "copy": lambda: data[:MOVED_BYTES].copy_(data[MOVED_BYTES : 2 * MOVED_BYTES]),
        "product": lambda: torch.mm(a, b, out=product),
        "long spin": lambda: torch.cuda._sleep(400_000),
    }
    graphs = {}
    for case, call in calls.items():
        call()
        graphs[case] = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graphs[case]):
            call()
    print(json.dumps({case: min(among_us(graph) for _ in range(5)) for case, graph in graphs.items()}), flush=True)
    for line in sys.stdin:
        case, first, count = json.loads(line)
        for number in range(first, first + count):
            gate.wait_open(number)
            graphs[case].replay()
            gate.report_done(number)
        print("queued", flush=True)
        torch.cuda.synchronize()


def among_us(graph: torch.cuda.CUDAGraph) -> float:
    """One of a chain of such graphs, in us."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(1_000_000)
    graph.replay()
    begin.record()
    for _ in range(CHAIN):
        graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / CHAIN


class Judge:
    """The side that times: two streams, a cache to make cold, and the host's memory that the copies go to."""

    def __init__(self, steps: int) -> None:
        self.copies, self.steps, self.starts = torch.cuda.Stream(), steps, 0
        self.junk, self.sum = torch.zeros(JUNK_BYTES // 4, device="cuda"), torch.zeros((), device="cuda")
        self.started = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        self.words = torch.zeros(steps, dtype=torch.int32, pin_memory=True)
        self.samples = torch.zeros((steps, ROWS * WIDTH_BYTES), dtype=torch.uint8, pin_memory=True)
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(steps)]

    def window(self, gate: cuda_driver.Gate, number: int, data: torch.Tensor) -> tuple[float | None, float]:
        """(when a copy saw the call done, None where none did; the mark in the stream that waited), us from the opening on."""
        opened, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for event in (opened, end, *self.events):  # the driver makes an event when it is first recorded
            event.record()
        torch.sum(self.junk, dim=0, out=self.sum)
        self.words.zero_()
        torch.cuda.current_stream().synchronize()
        self.starts += 1
        late = threading.Timer(LATE_S, self.started.fill_, (self.starts,))
        late.start()
        cuda_driver.wait_for_word(self.started.data_ptr(), self.starts)
        torch.sum(self.junk, dim=0, out=self.sum)
        opened.record()
        gate.open(number)
        gate.wait_done(number)
        end.record()
        self.copies.wait_event(opened)
        for step, event in enumerate(self.events):
            self.step(step, int(gate.memory.address) + cuda_driver.DONE_OFFSET_BYTES, data)
            event.record(self.copies)
        late.cancel()
        late.join()
        if self.started.item() == self.starts:
            sys.exit(f"queueing a window took more than {LATE_S} s, and not all of it was there in time: measure again")
        self.started.fill_(self.starts)
        until_s = time.monotonic() + LIMIT_S
        while not end.query():
            if time.monotonic() > until_s:
                sys.exit(f"a call did not end in {LIMIT_S} s: has the worker failed?")
        self.copies.synchronize()
        hit = next((step for step, word in enumerate(self.words.tolist()) if word >= number), None)
        return None if hit is None else opened.elapsed_time(self.events[hit]) * 1e3, opened.elapsed_time(end) * 1e3

    def step(self, step: int, word: int, data: torch.Tensor) -> None:
        """Queue a copy of the word, and one of a sample."""
        stream = self.copies.cuda_stream
        cuda_driver.call(driver.cuMemcpyDtoHAsync, self.words[step].data_ptr(), word, 4, stream)
        sample = driver.CUDA_MEMCPY2D()
        sample.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        sample.srcDevice, sample.srcPitch = data.data_ptr(), MOVED_BYTES // ROWS
        sample.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
        sample.dstHost, sample.dstPitch = self.samples[step].data_ptr(), WIDTH_BYTES
        sample.WidthInBytes, sample.Height = WIDTH_BYTES, ROWS
        cuda_driver.call(driver.cuMemcpy2DAsync, sample, stream)


def measured(judge: Judge, rounds: int, batches: int) -> dict[str, Any]:
    """What one fresh process gives: for each case what a call takes among others, `seen` and `end`, trimmed means in us."""
    (gate_memory, gate_fd), (data, data_fd) = cuda_driver.allocate(cuda_driver.GATE_BYTES, 0), cuda_driver.allocate(DATA_BYTES, 0)
    gate_memory.tensor.zero_()
    torch.cuda.synchronize()
    command = [sys.executable, __file__, "--worker", str(gate_fd), str(data_fd)]
    gate, number, found = cuda_driver.Gate(gate_memory), 1, dict[str, Any]()
    fds, pipe = (gate_fd, data_fd), subprocess.PIPE
    with subprocess.Popen(command, pass_fds=fds, stdin=pipe, stdout=pipe, text=True) as process, ExitStack() as stack:
        stack.callback(process.kill)
        assert process.stdin is not None and process.stdout is not None
        among = json.loads(process.stdout.readline())
        for case in CASES:
            windows = []
            for _ in range(batches):
                print(json.dumps((case, number, rounds)), file=process.stdin, flush=True)
                assert process.stdout.readline() == "queued\n"
                time.sleep(0.003)
                # The first finds the GPU idle.
                windows += [judge.window(gate, each, data.tensor) for each in range(number, number + rounds)][1:]
                number += rounds
            seen = [at for at, _ in windows if at is not None]
            if len(seen) < len(windows):
                sys.exit(
                    f"{case}: {len(windows) - len(seen)} of {len(windows)} calls ended after the last step: give --steps more"
                )
            found[case] = {"among": among[case], "seen": trimmed_mean(seen), "end": trimmed_mean([end for _, end in windows])}
    gate_memory.close()
    data.close()
    os.close(gate_fd)
    os.close(data_fd)
    return found


def table(processes: Sequence[dict[str, Any]]) -> str:
    """Markdown, a row for each case."""
    lines = ["| call | among others | seen | sd | longer than the spin | sd | mark in the stream | sd | longer | sd |"]
    lines.append("|---" * 10 + "|")
    for case in CASES:
        cells = [f"{statistics.fmean(each[case]['among'] for each in processes):.1f}"]
        for kind in ("seen", "end"):
            for values in (
                [each[case][kind] for each in processes],
                [each[case][kind] - each["spin"][kind] for each in processes],
            ):
                cells += [f"{statistics.fmean(values):.1f}", f"{statistics.stdev(values):.2f}"]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=16, help="calls of a batch, of which the first does not count")
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--steps", type=int, default=160, help="copies of the word beside one call")
    parser.add_argument("--worker", type=int, nargs=2, metavar="FD", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker)
        return
    if options.processes < 2:
        parser.error("--processes: two at least, since it is measured how far they lie apart")
    if options.rounds < 2:
        parser.error("--rounds: two at least, since the first call of a batch does not count")
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    judge = Judge(options.steps)
    print(table([measured(judge, options.rounds, options.batches) for _ in range(options.processes)]))
    print(f"\n{torch.cuda.get_device_name(0)}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
