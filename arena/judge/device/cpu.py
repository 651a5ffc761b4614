"""A CPU as the device under test: one core for the worker, the others for the judge."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from arena.judge.device import calibrate_cpu
from arena.judge.device.device import OpenDevice
from arena.judge.device.memory import HostMemory
from arena.judge.sampling import CPU
from arena.schema import Device

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""A worker on one core gains nothing from more threads, and libraries would start one per core of the machine."""


@contextmanager
def cpu_device() -> Iterator[OpenDevice]:
    """Reserve one core for the worker: the last, since the first takes most interrupts. The judge runs on the others."""
    found = calibrate_cpu.cpu()
    # A CPU has no fp8 arithmetic. The fastest way is a wider type: fp32 and bf16 both hold e4m3 exactly.
    tflops = found.tflops | {"fp8": max(found.tflops.values())}
    device = Device(name=found.device, bandwidth_gb_s=found.bandwidth_gb_s, tflops=tflops, ceilings="measured")
    cpus, threads = os.sched_getaffinity(0), torch.get_num_threads()
    others = cpus - {max(cpus)} or cpus
    os.sched_setaffinity(0, others)
    torch.set_num_threads(len(others))
    try:
        yield OpenDevice(device, HostMemory(), CPU, _load, calibrate_cpu.copy_gb_s, cpus=frozenset({max(cpus)}), env=ONE_THREAD)
    finally:
        os.sched_setaffinity(0, cpus)
        torch.set_num_threads(threads)


def _load() -> dict[str, str]:
    """How busy the machine was."""
    return {"load_average": f"{os.getloadavg()[0]:.2f}"}
