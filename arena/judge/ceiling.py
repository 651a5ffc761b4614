"""From seconds to a fraction of what the hardware could do. Pure functions."""

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

from arena.schema import Device, Rate


class Ceiling(NamedTuple):
    """The least time the hardware needs for one call, and which of its limits sets it."""

    seconds: float
    bound: Literal["memory", "compute"]


def ceiling(flops: float, bytes_: float, device: Device, rate: Rate) -> Ceiling:
    """The larger of computing `flops` and moving `bytes_` at the device's peak rates."""
    compute_s = flops / (device.tflops[rate] * 1e12)
    memory_s = bytes_ / (device.bandwidth_gb_s * 1e9)
    return Ceiling(memory_s, "memory") if memory_s >= compute_s else Ceiling(compute_s, "compute")


def geometric_mean(values: Iterable[float]) -> float:
    """The problem's score from the fractions of its shapes."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs))
