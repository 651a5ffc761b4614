"""Seconds that each phase of a scoring takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from arena.schema import Timings

Phase = Literal["build", "check", "benchmark", "evidence"]


class Stopwatch:
    """Seconds by phase. `build` is time for compilers and tuners, whenever they run."""

    def __init__(self) -> None:
        self._spent_s: dict[Phase, float] = {"build": 0.0, "check": 0.0, "benchmark": 0.0, "evidence": 0.0}
        self._begin_s = self._since_s = time.monotonic()
        self._now: Phase | None = None

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Count the time inside the block for `name` alone: the phase around it pauses."""
        outer = self._change(name)
        try:
            yield
        finally:
            self._change(outer)

    def timings(self) -> Timings:
        """The totals so far."""
        rounded = {f"{name}_s": round(seconds, 3) for name, seconds in self._spent_s.items()}
        return Timings(**rounded, total_s=round(time.monotonic() - self._begin_s, 3))

    def _change(self, name: Phase | None) -> Phase | None:
        now_s = time.monotonic()
        if self._now is not None:
            self._spent_s[self._now] += now_s - self._since_s
        outer, self._now, self._since_s = self._now, name, now_s
        return outer
