"""How many windows, calls and processes a score takes: the settings of the judge, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass

from arena.schema import LaunchMode

MIB = 1 << 20


@dataclass(frozen=True)
class Sampling:
    """Effort and limits of one scoring. `CPU` and `GPU` are the published method."""

    processes: int = 3
    """Fresh worker processes that are timed; the score is the median of what each finds."""
    window_s: float = 0.010
    """A window holds as many calls as fill this time, within the next two bounds."""
    min_calls: int = 16
    max_calls: int = 1024
    cold_bytes: int = 0
    """The sets of a window together take at least this much, so that no call finds its inputs in a cache."""
    sets_bytes: int = 128 * MIB
    """Most memory for one shape's input and output sets on a CPU. On a GPU the limit is a share of the free memory."""
    min_windows: int = 7
    max_windows: int = 11
    half_width: float = 0.005
    """Stop adding windows when half of the 95 % interval of a process's median is this narrow, relative."""
    empty_windows: int = 15
    """Windows without calls of the submission for each shape, in each process, before it loads the submission."""
    alone_windows: int = 0
    """Batches of calls one at a time, of each shape in each process, each on a set of its own. On a CPU, one core, no calls
    overlap."""
    alone_audits: int = 1
    """Calls of each such batch, at secret places, that are audits: of a hidden input class, verified, their time not kept."""
    alone_sample: int = 1
    """Secretly chosen outputs verified in each such batch, besides its audits."""
    alone_margin: float = 0.015
    """How much shorter a captured call alone counts than it was measured, relative,"""
    alone_margin_s: float = 10e-6
    """and at most (docs/judge.md, "A call alone")."""
    sample: int = 2
    """Secretly chosen outputs verified in each timed window."""
    audit_windows: int = 2
    """Audit windows among the timed ones of each shape and process. They mix in hidden input classes; their time is not kept."""
    audit_sample: int = 6
    """Secretly chosen outputs verified in each audit window."""
    drift: float = math.inf
    """A process is timed again when a trusted kernel's speed moved by more than this meanwhile, relative."""
    repeats: int = 0
    """How often one process may be timed again."""
    steady_half_width: float = 0.05
    """A shape is `unsteady` when half of its time's 95 % interval is wider than this, relative (docs/measurements/judge.md)."""
    steady_apart: float = 0.10
    """A shape is also `unsteady` when its processes' times lie farther apart than this, relative,"""
    steady_apart_s: float = 0.0
    """and, of calls alone, farther than this: one process knows them to a microsecond or two, however short they are."""
    kernels: bool = True
    """Whether to name the kernels that a call launches, after each process's timing."""
    counters: bool = True
    """Whether to read the counters of these kernels, too, where possible: in a worker of its own that builds with the others."""
    build_limit_s: float = 600.0
    """For importing solution.py, which may compile."""
    first_call_limit_s: float = 600.0
    """For the untimed first calls on a shape, which may tune."""
    call_limit_s: float = 60.0
    """For any later window."""
    total_limit_s: float = 3600.0
    """For all that one worker does in its own turns."""

    def margin_s(self, alone_s: float, launch_mode: LaunchMode) -> float:
        """What is taken off a call alone before it counts, in seconds.

        After most kernels the GPU takes some microseconds more to change back to the judge's context than after the judge's own
        calls, and one process knows a call alone to 1 or 2 us only. So the time among others counts, unless a call alone is
        longer by more than the margin. Captured calls are a chain: to gain from the calls beside it a worker must break the chain
        or the rules. Calls launched one by one may overlap without that, and have no margin.
        """
        return min(self.alone_margin * alone_s, self.alone_margin_s) if launch_mode == "graph" else 0.0

    def briefer(self, published: Sampling) -> bool:
        """Whether it times fewer processes or windows than `published`."""
        return self.processes < published.processes or self.min_windows < published.min_windows

    def __post_init__(self) -> None:
        # Audit windows come among the first `min_windows`. A submission that is careful only there must not own the median.
        if self.max_windows >= 2 * self.min_windows:
            raise ValueError(f"max_windows {self.max_windows} must be less than twice min_windows {self.min_windows}")


CPU = Sampling()
GPU = Sampling(
    window_s=0.004,
    min_calls=8,
    max_calls=64,
    drift=0.03,
    repeats=2,
    empty_windows=3,
    min_windows=3,
    max_windows=5,
    audit_windows=1,
    audit_sample=2,
    sample=1,
    alone_windows=4,
    steady_half_width=0.02,
    steady_apart=0.03,
    steady_apart_s=5e-6,
)
"""Fewer windows suffice than on a CPU: a window's inputs are far larger than the cache, and its clock is the device's own."""
