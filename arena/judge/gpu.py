"""A GPU as a bench: is it the one asked for, is it ours alone, and in what state is it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from arena.errors import JudgeError
from arena.judge import nvml
from arena.judge.bench import Bench
from arena.judge.plan import GPU
from arena.schema import Device, Hardware, Rate

ENV = {"TRITON_CACHE_DIR": "/tmp/triton", "TORCH_EXTENSIONS_DIR": "/tmp/extensions", "CUDA_CACHE_PATH": "/tmp/cuda"}
"""Compilers' caches on the box's own /tmp: empty for each worker, so that nothing is handed from one to the next."""


@contextmanager
def bench(hardware: Hardware, index: int) -> Iterator[Bench]:
    """GPU number `index` as CUDA counts; JudgeError when it is not that hardware, is absent, or is in use."""
    if not torch.cuda.is_available():
        raise JudgeError(
            f"torch finds no GPU here, and {hardware.title} was asked for; score on --hardware cpu, or see `arena doctor`"
        )
    if index >= torch.cuda.device_count():
        raise JudgeError(f"there is no GPU {index}: torch counts {torch.cuda.device_count()} from 0")
    torch.cuda.set_device(index)
    found = torch.cuda.get_device_properties(index)
    if found.name not in hardware.device_names:
        raise JudgeError(
            f"GPU {index} is {found.name!r}, not {hardware.title} ({', '.join(hardware.device_names)}): name its own hardware"
        )
    try:
        from arena.judge.gpu_memory import CudaMemory
    except ModuleNotFoundError as missing:
        raise JudgeError(
            f"{missing.name} is not installed, and GPU buffers need it: pip install -e '.[gpu]' in arena's checkout"
        ) from None
    uuid = f"GPU-{found.uuid}"
    with nvml.opened(uuid) as gpu:
        if gpu is not None and (strangers := gpu.strangers()):
            pids = ", ".join(map(str, strangers))
            raise JudgeError(
                f"other processes compute on GPU {index} (pid {pids}); a score needs it alone: end them or choose another GPU"
            )
        minor = gpu.minor() if gpu is not None else None
        yield Bench(
            device=_device(hardware, found.name, uuid, gpu),
            memory=CudaMemory(index),
            plan=GPU,
            conditions=lambda: _conditions(gpu),
            gpu=index if minor is None else minor,
            env=ENV,
        )


def _device(hardware: Hardware, name: str, uuid: str, gpu: nvml.Gpu | None) -> Device:
    """The device and the vendor's ceilings for it."""
    if hardware.bandwidth_gb_s is None:
        raise JudgeError(f"{hardware.name}.yaml gives no bandwidth")
    driver = gpu.library.nvmlSystemGetDriverVersion() if gpu is not None else nvml.UNKNOWN
    tflops: dict[Rate, float] = {rate: figure.value for rate, figure in hardware.tflops.items()}
    return Device(
        name=name,
        uuid=uuid,
        driver=driver if isinstance(driver, str) else driver.decode(),
        bandwidth_gb_s=hardware.bandwidth_gb_s.value,
        tflops=tflops,
        ceilings="datasheet",
    )


def _conditions(gpu: nvml.Gpu | None) -> dict[str, str]:
    """The GPU's state, and a trusted kernel's speed: a copy of 256 MB."""
    source = torch.empty(256_000_000, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times_ms = []
    for _ in range(12):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times_ms.append(begin.elapsed_time(end))
    anchor = {"anchor_copy_gb_s": f"{2 * source.nbytes / min(times_ms) / 1e6:.0f}"}
    return anchor | (gpu.conditions() if gpu is not None else {"nvml": nvml.UNKNOWN})
