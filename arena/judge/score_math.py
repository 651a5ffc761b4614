"""The arithmetic of a score: samples to a time, work to a ceiling, fractions to a mean. Pure and deterministic functions."""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median
from typing import Literal, NamedTuple

from arena.schema import Device, Rate

RESAMPLES = 400
TRIMMED = 0.1
"""Share of the samples that `trimmed_mean` leaves out at either end."""
Middle = Callable[[Sequence[float]], float]
"""What one process's samples amount to: `median` of windows, `trimmed_mean` of calls alone."""


class Ceiling(NamedTuple):
    """The least time the hardware needs for one call, and which of its limits sets it."""

    seconds: float
    bound: Literal["memory", "compute"]


def ceiling(flops: float, bytes_: float, device: Device, rate: Rate) -> Ceiling:
    """The larger of computing `flops` and moving `bytes_` at the device's peak rates."""
    compute_s = flops / (device.tflops[rate] * 1e12)
    memory_s = bytes_ / (device.bandwidth_gb_s * 1e9)
    return Ceiling(memory_s, "memory") if memory_s >= compute_s else Ceiling(compute_s, "compute")


def trimmed_mean(samples: Sequence[float]) -> float:
    """The mean of calls alone without the lowest and the highest tenth, in seconds.

    Calls on different inputs may take one of two times, for one wave of blocks more or less. Their median would jump between
    these, while a window of many calls holds their mean.
    """
    out = round(TRIMMED * len(samples))
    return fmean(sorted(samples)[out : len(samples) - out])


def median_of_processes(processes: Sequence[Sequence[float]], middle: Middle = median) -> float:
    """The median over worker processes of the `middle` of each process's samples, in seconds per call."""
    return median(middle(samples) for samples in processes)


def interval(processes: Sequence[Sequence[float]], middle: Middle = median) -> tuple[float, float]:
    """Bootstrap 95 % interval of `median_of_processes`, drawn within each process; the same for the same samples."""
    return _interval(lambda dice: median_of_processes(_drawn(processes, dice), middle))


def interval_of_larger(among: Sequence[Sequence[float]], alone: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The same of the larger of two times on a GPU: the median of windows, and the trimmed mean of calls alone."""
    return _interval(
        lambda dice: max(median_of_processes(_drawn(among, dice)), median_of_processes(_drawn(alone, dice), trimmed_mean))
    )


def _drawn(processes: Sequence[Sequence[float]], dice: random.Random) -> list[list[float]]:
    """As many samples of each process, drawn again."""
    return [dice.choices(samples, k=len(samples)) for samples in processes]


def _interval(drawn: Callable[[random.Random], float]) -> tuple[float, float]:
    """The middle 95 % of what is drawn again and again."""
    dice = random.Random(0)
    again = sorted(drawn(dice) for _ in range(RESAMPLES))
    return again[int(0.025 * RESAMPLES)], again[int(0.975 * RESAMPLES)]


def half_width(samples: Sequence[float]) -> float:
    """Half of the 95 % interval of the median, relative to the median."""
    low, high = interval([samples])
    return (high - low) / 2 / median(samples)


def peak_fraction(fractions: Iterable[float]) -> float:
    """A problem's score: the geometric mean of its shapes' fractions of their ceilings."""
    logs = [math.log(fraction) for fraction in fractions]
    return math.exp(math.fsum(logs) / len(logs))
