"""Measure how evenly inputs are published on a GPU, and how much later they come when another process computes meanwhile.

    python scripts/measure_publishing.py [--sets 26] [--set-mb 512] [--places 12] [--times 300]

The judge publishes a window's inputs by one copy, from a buffer that only it has to one that the worker maps. How fast that is
depends on where in memory the two lie: the first table has each of several pairs, taken one after the other. The second counts by
how much the copies of one pair come late while another process runs a kernel of 2 us from time to time: with torch, or in a
context that holds no more than one thread needs. Such a kernel needs two changes of context, so no copy that it interrupts is
only a little late (`overhead.py` relies on that).
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable

import torch
from cuda.bindings import driver

from arena.judge.device.gpu_memory import CudaMemory
from arena.judge.device.memory import Buffer
from arena.judge.worker.cuda_driver import call

SPIN_CYCLES, MOST_PAUSE_S = 4_000, 0.02
SPIN = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry spin() {
    .reg .u64 %begin, %now;
    .reg .pred %early;
    mov.u64 %begin, %clock64;
LOOP:
    mov.u64 %now, %clock64;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %early, %now, SPIN_CYCLES;
    @%early bra LOOP;
    ret;
}
""".replace("SPIN_CYCLES", str(SPIN_CYCLES))
"""The same for a context without torch: one thread, a few registers, no memory."""
MIB = 1 << 20
QUEUED_CYCLES = 400_000
"""What the GPU does until all of one copy's steps are queued."""
COPIES = 15
BOUNDS_US = (10, 20, 40, 60, 80, 100, 150, 200, 250, 300, 400, 1000)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=26)
    parser.add_argument("--set-mb", type=int, default=512, help="MiB of one set")
    parser.add_argument("--places", type=int, default=12, help="pairs of buffers")
    parser.add_argument("--times", type=int, default=300, help="copies beside another process")
    parser.add_argument("--beside", choices=OTHERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.beside:
        run_beside(OTHERS[options.beside])
    memory, size_bytes = CudaMemory(0), options.sets * options.set_mb * MIB
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {size_bytes / 1e9:.1f} GB in each copy\n")

    print("| pair of buffers | us, median | shortest | longest | from the first pair's |\n|---|---|---|---|---|")
    first_us, pair = 0.0, (memory.buffer(size_bytes), memory.buffer(size_bytes))
    for number in range(options.places):
        times_us = [copy_us(memory, *pair) for _ in range(COPIES)][1:]
        middle_us = statistics.median(times_us)
        first_us = first_us or middle_us
        row = (number, f"{middle_us:.0f}", f"{min(times_us):.0f}", f"{max(times_us):.0f}", f"{middle_us - first_us:+.0f}")
        print(f"| {' | '.join(map(str, row))} |", flush=True)
        source, target = pair
        if number + 1 < options.places:
            pair = (target, memory.buffer(size_bytes))  # so that the new one lies elsewhere
            source.close()

    late_us = {"by itself": [copy_us(memory, *pair) for _ in range(options.times)]}
    usual_us = statistics.median(late_us["by itself"])
    for name in OTHERS:
        with subprocess.Popen([sys.executable, __file__, "--beside", name], stdout=subprocess.PIPE, text=True) as other:
            try:
                assert other.stdout is not None
                if not other.stdout.readline():
                    sys.exit(f"the other process ({name}) did not start")
                late_us[f"beside {name}"] = [copy_us(memory, *pair) for _ in range(options.times)]
            finally:
                other.kill()
    print(f"\n| late by, us | {' | '.join(late_us)} |\n|---|{'---|' * len(late_us)}")
    counts = [Counter(bound_of(time_us - usual_us) for time_us in times_us) for times_us in late_us.values()]
    for bound in sorted(set().union(*counts)):
        print(f"| below {bound} | {' | '.join(str(count[bound]) for count in counts)} |")


def copy_us(memory: CudaMemory, source: Buffer, target: Buffer) -> float:
    """Publish as `gpu_window.py` does: copy, and read what is no part of it."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(QUEUED_CYCLES)
    begin.record()
    target.bytes.copy_(source.bytes)
    memory.make_cold()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3


def bound_of(late_us: float) -> float:
    """The least of the bounds that it is below."""
    return next((bound for bound in BOUNDS_US if late_us < bound), float("inf"))


def spin_with_torch() -> None:
    """Run a short kernel in torch's context."""
    torch.cuda._sleep(SPIN_CYCLES)
    torch.cuda.synchronize()


def small_context() -> Callable[[], None]:
    """What runs a short kernel in a context that holds as little as possible."""
    call(driver.cuInit, 0)
    call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, call(driver.cuDeviceGet, 0)))
    limits = driver.CUlimit
    for limit in (limits.CU_LIMIT_STACK_SIZE, limits.CU_LIMIT_PRINTF_FIFO_SIZE, limits.CU_LIMIT_MALLOC_HEAP_SIZE):
        call(driver.cuCtxSetLimit, limit, 0)
    spin = call(driver.cuModuleGetFunction, call(driver.cuModuleLoadData, SPIN.encode() + b"\0"), b"spin")

    def run() -> None:
        call(driver.cuLaunchKernel, spin, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
        call(driver.cuCtxSynchronize)

    return run


OTHERS = {"torch": lambda: spin_with_torch, "a small context": small_context}
"""The other processes, and what makes each of them ready to run its kernel."""


def run_beside(prepare: Callable[[], Callable[[], None]]) -> None:
    """Run a short kernel at random times, until killed."""
    run = prepare()
    run()
    print("begun", flush=True)
    while True:
        run()
        time.sleep(random.uniform(0.0, MOST_PAUSE_S))


if __name__ == "__main__":
    main()
