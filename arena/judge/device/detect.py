"""Detect this machine's hardware when --hardware is not given, and open the device to measure on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from arena import catalog
from arena.errors import JudgeError
from arena.judge.device import calibrate_cpu
from arena.judge.device.device import OpenDevice
from arena.judge.device.memory import HostMemory
from arena.judge.sampling import CPU
from arena.schema import Device, Hardware


def hardware_here(gpu: int) -> Hardware:
    """The hardware of GPU number `gpu`, as CUDA counts; `cpu` where torch finds no GPU.

    UsageError when no hardware file lists that GPU, JudgeError when there are GPUs but none of that number.
    """
    if not torch.cuda.is_available():
        return catalog.hardware("cpu")
    if gpu >= (count := torch.cuda.device_count()):
        raise JudgeError(f"there is no GPU {gpu}: torch counts {count} from 0")
    return catalog.hardware_of(torch.cuda.get_device_name(gpu))


def open_device(hardware: Hardware, gpu: int, *, shared: bool = False) -> AbstractContextManager[OpenDevice]:
    """The device of that hardware; JudgeError when this machine has another one. `gpu` counts as CUDA does.

    A GPU on which other processes compute is refused unless it may be `shared`: no time taken on it means anything.
    """
    if hardware.profile == "cpu":
        return _cpu_device()
    from arena.judge.device.gpu import gpu_device  # its modules need packages that a machine without a GPU may lack

    return gpu_device(hardware, gpu, shared=shared)


@contextmanager
def _cpu_device() -> Iterator[OpenDevice]:
    """Reserve one core for the worker: the last, since the first takes most interrupts. The judge runs on the others."""
    found = calibrate_cpu.cpu()
    # A CPU has no fp8 arithmetic. The fastest way is a wider type: fp32 and bf16 both hold e4m3 exactly.
    tflops = found.tflops | {"fp8": max(found.tflops.values())}
    device = Device(name=found.device, bandwidth_gb_s=found.bandwidth_gb_s, tflops=tflops, ceilings="measured")
    cpus = os.sched_getaffinity(0)
    worker_cpus = frozenset({max(cpus)})
    # A worker on one core gains nothing from more threads, and libraries would start one per core of the machine.
    env = {"OMP_NUM_THREADS": "1"}

    def conditions() -> dict[str, str]:
        found_busy = {"ceilings_busy": found.busy} if found.busy else {}
        return {"load_average": f"{os.getloadavg()[0]:.2f}", **found_busy}

    with calibrate_cpu.on_cores(cpus - worker_cpus or cpus):
        yield OpenDevice(device, HostMemory(), CPU, conditions, calibrate_cpu.copy_gb_s, cpus=worker_cpus, env=env)
