"""Where a score is taken: the device, its memory, its state before and after, and what the worker may use of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import torch

from arena.judge import calibrate
from arena.judge.buffers import HostMemory, Memory
from arena.judge.plan import CPU, Plan
from arena.schema import Device, Hardware

ONE_THREAD = {"OMP_NUM_THREADS": "1"}
"""A worker on one core gains nothing from more threads, and libraries guess from the machine's core count."""


@dataclass(frozen=True)
class Bench:
    """One device, ready to be measured on."""

    device: Device
    memory: Memory
    plan: Plan
    conditions: Callable[[], dict[str, str]]
    """The device's state right now; taken before and after."""
    anchor_gb_s: Callable[[], float]
    """How fast a trusted copy runs right now, GB/s."""
    cpus: frozenset[int] | None = None
    """Processors that a worker may use; None for all."""
    gpu: int | None = None
    """Number of the GPU's device node."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of the workers."""
    counting: Callable[[], tuple[str, ...] | str] = lambda: "this hardware has no counters that the judge knows how to read"
    """The command line around a worker that reads hardware counters, or why there is none. To ask takes seconds."""


def bench(hardware: Hardware, gpu: int, *, shared: bool = False) -> AbstractContextManager[Bench]:
    """The device of that hardware; JudgeError when this machine has another one. `gpu` counts as CUDA does.

    A GPU on which others compute is refused unless it may be `shared`: nothing that is timed then means anything.
    """
    if hardware.profile == "cpu":
        return _cpu()
    from arena.judge import gpu as cuda

    return cuda.bench(hardware, gpu, shared=shared)


@contextmanager
def _cpu() -> Iterator[Bench]:
    """One core for the worker: the last, since the first takes most interrupts. The judge keeps off it."""
    found = calibrate.cpu()
    # There is no fp8 arithmetic: the fastest way is through a wider type, and fp32 and bf16 both hold e4m3 exactly.
    tflops = found.tflops | {"fp8": max(found.tflops.values())}
    device = Device(name=found.device, bandwidth_gb_s=found.bandwidth_gb_s, tflops=tflops, ceilings="measured")
    cpus, threads = os.sched_getaffinity(0), torch.get_num_threads()
    others = cpus - {max(cpus)} or cpus
    os.sched_setaffinity(0, others)
    torch.set_num_threads(len(others))
    try:
        yield Bench(device, HostMemory(), CPU, _load, calibrate.copy_gb_s, cpus=frozenset({max(cpus)}), env=ONE_THREAD)
    finally:
        os.sched_setaffinity(0, cpus)
        torch.set_num_threads(threads)


def _load() -> dict[str, str]:
    """How busy the machine was."""
    return {"load_average": f"{os.getloadavg()[0]:.2f}"}
