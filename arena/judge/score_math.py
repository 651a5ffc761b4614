"""The arithmetic of a score: samples to a time, work to a ceiling, fractions to a mean. Pure and deterministic functions."""

import math
import random
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Literal, NamedTuple

from arena.schema import Device, Rate

RESAMPLES = 400


class Ceiling(NamedTuple):
    """The least time the hardware needs for one call, and which of its limits sets it."""

    seconds: float
    bound: Literal["memory", "compute"]


def ceiling(flops: float, bytes_: float, device: Device, rate: Rate) -> Ceiling:
    """The larger of computing `flops` and moving `bytes_` at the device's peak rates."""
    compute_s = flops / (device.tflops[rate] * 1e12)
    memory_s = bytes_ / (device.bandwidth_gb_s * 1e9)
    return Ceiling(memory_s, "memory") if memory_s >= compute_s else Ceiling(compute_s, "compute")


def median_of_medians(processes: Sequence[Sequence[float]]) -> float:
    """The median over worker processes of each process's median window, in seconds per call."""
    return median(median(samples) for samples in processes)


def interval(processes: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Bootstrap 95 % interval of `median_of_medians`, windows resampled within their process; the same for the same samples."""
    dice = random.Random(0)
    medians = sorted(
        median_of_medians([dice.choices(samples, k=len(samples)) for samples in processes]) for _ in range(RESAMPLES)
    )
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]


def half_width(samples: Sequence[float]) -> float:
    """Half of the 95 % interval of the median, relative to the median."""
    low, high = interval([samples])
    return (high - low) / 2 / median(samples)


def peak_fraction(fractions: Iterable[float]) -> float:
    """A problem's score: the geometric mean of its shapes' fractions of their ceilings."""
    logs = [math.log(fraction) for fraction in fractions]
    return math.exp(math.fsum(logs) / len(logs))
