"""The device a score is taken on: its memory, its state before and after, and what the worker may use of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from arena.judge.device.memory import Memory
from arena.judge.sampling import Sampling
from arena.schema import Device


@dataclass(frozen=True)
class OpenDevice:
    """One device, ready to be measured on."""

    record: Device
    """The device as a score records it, with its ceilings."""
    memory: Memory
    sampling: Sampling
    conditions: Callable[[], dict[str, str]]
    """Reads the device's state right now; called before and after timing."""
    anchor_gb_s: Callable[[], float]
    """Measures how fast a trusted copy runs right now, GB/s."""
    strangers: Callable[[int], list[int]] = lambda least_bytes: []
    """Pids of processes that compute on it beside the judge, in no sandbox and no container, and hold so much of its memory."""
    cpus: frozenset[int] | None = None
    """Processors that a worker may use; None for all."""
    gpu: int | None = None
    """Number of the GPU's device node."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of the workers."""
