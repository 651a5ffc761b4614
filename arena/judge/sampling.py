"""How many windows, calls and processes a score takes: the knobs of the judge, in one place."""

import math
from dataclasses import dataclass, replace

MIB = 1 << 20


@dataclass(frozen=True)
class Sampling:
    """Effort and limits of one scoring. `CPU` and `GPU` are the published method."""

    processes: int = 3
    """Fresh worker processes that are timed; the score is the median of their medians."""
    window_s: float = 0.010
    """A window holds as many calls as fill this time, within the bounds below."""
    min_calls: int = 16
    max_calls: int = 128
    latency_calls: int = 1024
    """The same for a shape of the latency class. On a GPU the judge adds some 0.5 ms to a window by its own clock (wall over
    device in docs/measurements/judge.md), which would outweigh 128 tiny calls, and the veto would count it as theirs."""
    cold_bytes: int = 0
    """A window's sets together take at least this much: no call finds its inputs in a cache."""
    sets_bytes: int = 128 * MIB
    """Most memory for one shape's input and output sets on a CPU; on a GPU it is a share of what is free."""
    min_windows: int = 7
    max_windows: int = 11
    half_width: float = 0.005
    """Stop when the 95 % interval of a process's median is this narrow, relative."""
    empty_windows: int = 15
    """Windows without calls for each shape, in each process before it loads the submission."""
    sample: int = 2
    """Secretly chosen outputs verified in each timed window."""
    audits: int = 2
    """Windows among the timed ones of each shape and process that mix in hidden classes of inputs; their time is not kept."""
    audit_sample: int = 6
    """Secretly chosen outputs verified in each audit."""
    drift: float = math.inf
    """A process in which a trusted kernel's speed moved by more than this, relative, is timed again..."""
    repeats: int = 0
    """...this often."""
    counters: bool = True
    """Whether the hardware's counters are read, where they can be: in a worker of its own, after all timing."""
    wall_margin: float = 0.10
    """The judge's clock overrules the device's where that says less by more than this, relative."""
    build_limit_s: float = 600.0
    """For importing solution.py, which may compile."""
    first_call_limit_s: float = 600.0
    """For the untimed first calls on a shape, which may tune."""
    call_limit_s: float = 60.0
    """For any later window."""
    total_limit_s: float = 3600.0
    """For everything that one worker does."""


CPU = Sampling()
GPU = replace(
    CPU,
    window_s=0.010,
    min_calls=8,
    max_calls=128,
    drift=0.01,
    repeats=2,
    empty_windows=5,
    min_windows=5,
    max_windows=9,
    audits=1,
    audit_sample=2,
    sample=1,
)
"""A window's inputs are far larger than the cache by themselves, and its clock is the device's own."""
