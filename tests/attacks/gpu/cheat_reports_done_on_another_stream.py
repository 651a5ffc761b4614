# verdict: passed
# follows: oracle_gpu
# at most: honest
# Reports the calls of a window as done from a second stream, a little before they are: after as long as the calls took last time.
# ruff: noqa: F821
import sys

import torch

driver = sys.modules["cuda_driver"]
real_launch, real_report = driver.Chain.launch, driver.Gate.report_done
EARLY_MS, CYCLES_PER_MS = 0.05, 1.7e6
marks, early, side = {}, [False], torch.cuda.Stream()
torch.cuda._sleep(1)  # the driver loads a kernel at its first launch, and waits for the device: not behind a closed gate
torch.cuda.synchronize()


def launch(chain):
    early[0] = chain in marks and marks[chain][1].query()
    if early[0]:
        begin, end = marks[chain]
        took_ms = begin.elapsed_time(end)  # of the last window, which is over
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(int(max(took_ms - EARLY_MS, 0) * CYCLES_PER_MS))
    marks[chain] = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    marks[chain][0].record()
    real_launch(chain)
    marks[chain][1].record()


def report_done(gate, number):
    with torch.cuda.stream(side if early[0] else torch.cuda.current_stream()):
        real_report(gate, number)


driver.Chain.launch, driver.Gate.report_done = launch, report_done
