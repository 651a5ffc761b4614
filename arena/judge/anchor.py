"""The trusted copy beside each process: whether the device keeps its speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count

READINGS, SETTLED = 6, 0.005
"""Readings after the first, until two in a row differ by no more than the second number, relative."""
WAIT_S, PAUSE_S = 3.0, 0.1
"""How long it is read on while it is below the usual, and the pause between two readings."""
IDLE_READINGS, IDLE_PAUSE_S = 5, 0.1
"""How often it is read before any worker starts, and the pause after each reading."""


def fastest_gb_s(read: Callable[[], float]) -> float:
    """The fastest of several readings, GB/s: the driver may still be clearing memory that a score before gave back."""
    rates = list[float]()
    for _ in range(IDLE_READINGS):
        rates.append(read())
        time.sleep(IDLE_PAUSE_S)
    return max(rates)


class Anchor:
    """`read` gives the copy's rate in GB/s. One is usual that is less than the fastest so far by at most `drift`, relative.

    `idle_gb_s` is the rate before any worker has started; 0 where it is not known.
    """

    def __init__(self, read: Callable[[], float], drift: float, idle_gb_s: float = 0.0) -> None:
        self._read, self._drift, self._fastest_gb_s = read, drift, idle_gb_s

    def settled_gb_s(self, *, wait: bool) -> float:
        """The rate once it stops moving: after memory was given back, the driver is busy clearing it.

        It may do so at an even pace. So with `wait` a rate that is not usual is read again for some seconds.
        """
        usual_gb_s = (1 - self._drift) * self._fastest_gb_s if wait and self._fastest_gb_s else 0.0
        until_s, last = time.monotonic() + WAIT_S, self._read()
        for number in count(1):
            now = self._read()
            settled = abs(now / last - 1) <= SETTLED or number >= READINGS
            if settled and (now >= usual_gb_s or time.monotonic() > until_s):
                break
            if now < usual_gb_s:
                time.sleep(PAUSE_S)
            last = now
        self._fastest_gb_s = max(self._fastest_gb_s, now)
        return now
