"""Detect this machine's hardware when --hardware is not given, and open the device to measure on."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from arena import catalog
from arena.errors import JudgeError
from arena.judge.device.cpu import cpu_device
from arena.judge.device.device import OpenDevice
from arena.schema import Hardware


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
        return cpu_device()
    from arena.judge.device.gpu import gpu_device  # its modules need packages that a machine without a GPU may lack

    return gpu_device(hardware, gpu, shared=shared)
