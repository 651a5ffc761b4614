"""Numbers from samples. Deterministic: the same samples give the same interval."""

import random
from collections.abc import Sequence
from statistics import median

RESAMPLES = 400


def score_of(processes: Sequence[Sequence[float]]) -> float:
    """The median over worker processes of each process's median window."""
    return median(median(samples) for samples in processes)


def interval(processes: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Bootstrap 95 % interval of `score_of`, windows resampled within their process."""
    dice = random.Random(0)
    scores = sorted(score_of([dice.choices(samples, k=len(samples)) for samples in processes]) for _ in range(RESAMPLES))
    return scores[int(0.025 * RESAMPLES)], scores[int(0.975 * RESAMPLES)]


def half_width(samples: Sequence[float]) -> float:
    """Half of the 95 % interval of the median, relative to the median."""
    low, high = interval([samples])
    return (high - low) / 2 / median(samples)
