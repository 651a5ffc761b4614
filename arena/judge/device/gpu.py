"""A GPU as the device under test: the right model, used by no other process, with its state recorded."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import torch

from arena.errors import JudgeError
from arena.judge.device import calibrate_gpu, nvml
from arena.judge.device.device import OpenDevice
from arena.judge.rejection import Rejection
from arena.judge.sampling import GPU
from arena.schema import Device, Hardware, Rate

ENV = {
    "TRITON_CACHE_DIR": "/tmp/triton",
    "TORCH_EXTENSIONS_DIR": "/tmp/extensions",
    "CUDA_CACHE_PATH": "/tmp/cuda",
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
}
"""A worker's environment. Compilers' caches lie on the sandbox's own /tmp: empty for each worker, so that nothing passes from
one to the next. All streams of a worker share one hardware queue: with several, calls on two streams took 2 ms more, likely
because a queue that waits for another keeps the GPU from the judge until the time slice ends (docs/measurements/judge.md,
"Work on several streams")."""
ANCHOR_BYTES, ANCHOR_COPIES = 256_000_000, 100
ANCHOR_WARM_UPS, ANCHOR_REST_S = 15, 0.1
"""So often are these copies made before the first that counts, for about 0.2 s, where the last reading is longer ago than this
and the GPU has lowered its clocks, being idle: it takes that long to raise them."""
ANCHOR_LIMIT_S, POLL_S = 60.0, 2e-4
"""How long copies of some 0.02 s may take, and how often the judge looks whether they are done."""
TIMES_THE_CACHE = 3
# Read by the driver when it starts. The judge's own streams must not share a queue: one that waits at a gate would hold up the
# others behind it. In a worker nothing is to go on past its gate.
os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"


@contextmanager
def gpu_device(hardware: Hardware, index: int, *, shared: bool) -> Iterator[OpenDevice]:
    """GPU number `index`, as CUDA counts; JudgeError when it is absent, other hardware, or in use and not to be `shared`."""
    if not torch.cuda.is_available():
        text = f"torch finds no GPU here, and {hardware.title} was asked for"
        raise JudgeError(f"{text}; score on --hardware cpu, or see `arena doctor`")
    if index >= torch.cuda.device_count():
        raise JudgeError(f"there is no GPU {index}: torch counts {torch.cuda.device_count()} from 0")
    torch.cuda.set_device(index)
    found = torch.cuda.get_device_properties(index)
    if found.name not in hardware.device_names:
        text = f"GPU {index} is {found.name!r}, not {hardware.title}"
        raise JudgeError(f"{text} ({', '.join(hardware.device_names)}): name its own hardware")
    try:
        from arena.judge.device.gpu_memory import CudaMemory
    except ModuleNotFoundError as missing:
        text = f"{missing.name} is not installed, and GPU buffers need it: pip install -e '.[gpu]' in arena's checkout"
        raise JudgeError(text) from None
    uuid = f"GPU-{found.uuid}"
    with nvml.opened(uuid) as gpu:
        if gpu is not None and not shared and (other_pids := gpu.other_processes()):
            pids = ", ".join(map(str, other_pids))
            text = f"other processes compute on GPU {index} (pid {pids})"
            raise JudgeError(f"{text}; a score needs it alone: end them or choose another GPU")
        if gpu is not None and gpu.clocks_are_free():
            text = f"any user may set the clocks of GPU {index}, a submission too, and they stay for the next score"
            raise JudgeError(f"{text}: `sudo nvidia-smi -i {index} -acp RESTRICTED` ends that")
        minor = gpu.minor() if gpu is not None else None
        # A stream of its own: of several scores in one process, none waits at the gate of another.
        with torch.cuda.stream(torch.cuda.Stream(index)), contextlib.closing(CudaMemory(index, shared=shared)) as memory:
            yield OpenDevice(
                record=_device(hardware, found.name, uuid, gpu),
                memory=memory,
                # Windows whose inputs are several times as large as the device's last cache.
                sampling=replace(GPU, cold_bytes=TIMES_THE_CACHE * found.L2_cache_size),
                conditions=gpu.conditions if gpu is not None else lambda: {"nvml": nvml.UNKNOWN},
                # Where nothing is timed, its buffers would only take memory.
                anchor_gb_s=_anchor(index, gpu) if not shared else lambda: math.nan,
                strangers=gpu.strangers if gpu is not None else lambda least_bytes: [],
                gpu=index if minor is None else minor,
                env=ENV,
            )


def _device(hardware: Hardware, name: str, uuid: str, gpu: nvml.Gpu | None) -> Device:
    """The device, the vendor's ceilings for it, and what `arena calibrate` measured on it."""
    if hardware.bandwidth_gb_s is None:
        raise JudgeError(f"{hardware.name}.yaml gives no bandwidth: add bandwidth_gb_s")
    tflops: dict[Rate, float] = {rate: figure.value for rate, figure in hardware.tflops.items()}
    return Device(
        name=name,
        uuid=uuid,
        driver=gpu.driver() if gpu is not None else nvml.UNKNOWN,
        bandwidth_gb_s=hardware.bandwidth_gb_s.value,
        tflops=tflops,
        ceilings="datasheet",
        attainable=calibrate_gpu.known(uuid),
    )


def await_event(event: torch.cuda.Event, limit_s: float = ANCHOR_LIMIT_S) -> None:
    """Return when the device has come to this event; Rejection when it does not.

    Beside the copies there is nothing on the device but stopped submissions and what they left to run, which takes turns with
    them unless it cannot be interrupted.
    """
    until_s = time.monotonic() + limit_s
    while not event.query():
        if time.monotonic() > until_s:
            text = f"While the submission was stopped, the GPU did not end a copy of the judge's in {limit_s:.0f} s"
            raise Rejection("timed_out", f"{text}: a kernel that never ends, and cannot be interrupted, may hold it")
        time.sleep(POLL_S)


def _anchor(index: int, gpu: nvml.Gpu | None) -> Callable[[], float]:
    """A trusted copy between two fixed buffers of its own: its rate changes only when the device's speed does."""
    source = torch.zeros(ANCHOR_BYTES, dtype=torch.uint8, device=f"cuda:{index}")
    target = torch.empty_like(source)
    read_s = -math.inf

    def gb_s() -> float:
        """The best of many copies, read and write counted, GB/s (1e9)."""
        nonlocal read_s
        rested = time.monotonic() - read_s > ANCHOR_REST_S and (gpu is None or gpu.clocks_are_low())
        for _ in range(ANCHOR_WARM_UPS if rested else 0):
            for _ in range(ANCHOR_COPIES):
                target.copy_(source)
            done = torch.cuda.Event()
            done.record()
            await_event(done)
        # Queued at once: else the time from an event to its copy would be the host's, and the rate that of a busy machine.
        between = [torch.cuda.Event(enable_timing=True) for _ in range(ANCHOR_COPIES + 1)]
        between[0].record()
        for event in between[1:]:
            target.copy_(source)
            event.record()
        await_event(between[-1])
        times_ms = [float(begin.elapsed_time(end)) for begin, end in pairwise(between)]
        read_s = time.monotonic()
        return 2 * ANCHOR_BYTES / min(times_ms) / 1e6

    return gb_s
