"""The judge's own part of a window's time: what is taken off before a time counts."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

from arena.judge import gpu_window
from arena.judge.buffers import place
from arena.judge.context import ScoringContext
from arena.judge.problem_code import Shape
from arena.judge.sets import InputSpec, Late, WindowResult, poison
from arena.judge.window import public_window, retried
from arena.judge.worker_client import Worker
from arena.schema import LaunchMode

OWN_BATCHES, OWN_CALLS = 2, 16
"""Batches of the judge's own calls alone, and calls in each: as many as the GPU's queue holds at once."""
ALONE_MODES: tuple[LaunchMode, ...] = ("graph", "stream")
LATE, LATE_S = 0.2, 1e-3
"""How much longer than alone publishing may take, relative and absolute, before a window does not count. Contexts that take turns
do not need this bound: lateness counts."""
CHANGE, CHANGE_S = 0.4, 120e-6
"""From what lateness on it counts: this share of two changes of context, and at most this many seconds. A kernel that runs while
inputs are published needs these two: none made a copy less than 300 us late. Below is the copy itself, whose rate depends on
where its buffers lie: 14 GB came 84 us late at most (docs/measurements/judge.md, "What was a process's level")."""


@dataclass(frozen=True)
class Overhead:
    """The judge's own part of a window's time on one shape, measured in one worker before it loads the submission."""

    window_s: float
    calls: int = 2
    """In the windows that it was measured with: as many as those of the fastest possible kernel have."""
    publish_s: float = 0.0
    """Publishing the inputs of such a window on an idle GPU."""
    few: int = 1
    """The calls of a smaller window,"""
    few_publish_s: float = 0.0
    """and publishing its inputs."""
    alone_s: Mapping[LaunchMode, float] = field(default_factory=dict)
    """The judge's own part of the time of one call alone, which is less where no graph has to start."""
    alone_publish_s: float = 0.0
    """Publishing the inputs of such a call, and making its outputs wrong."""
    changes_s: float = 0.0
    """At most what two changes of context take: a call alone, less the least time in which its outputs can be copied."""

    def late_s(self, window: WindowResult, calls: int) -> float:
        """How much longer than on an idle GPU publishing the inputs of that many calls took. Late where it is far longer.

        0 where it is too little for a kernel to have run meanwhile.
        """
        alone_s = self.alone_publish_s
        if calls > 1:
            for_each_s = (self.publish_s - self.few_publish_s) / (self.calls - self.few)
            alone_s = self.publish_s - (self.calls - calls) * for_each_s
        late_s = window.publish_s - alone_s
        if late_s > LATE * alone_s + LATE_S:
            text = f"Something ran on the GPU while inputs were published: {late_s * 1e3:.3g} ms more than {alone_s * 1e3:.3g} ms"
            raise Late("cheated", text)
        return late_s if late_s > min(CHANGE * self.changes_s, CHANGE_S) else 0.0


def usual(processes: Sequence[Sequence[Overhead]]) -> list[Overhead]:
    """For each shape, what stands for a process in which it was not measured, from all processes that measured the shape."""
    found, longest = [], max(processes, key=len)
    for number, first in enumerate(longest):
        some = [process[number] for process in processes if number < len(process)]
        alone_s = {mode: median(each.alone_s[mode] for each in some) for mode in first.alone_s}
        found.append(replace(first, window_s=min(each.window_s for each in some), alone_s=alone_s))
    return found


def measure_overhead(context: ScoringContext, worker: Worker, shape: Shape) -> Overhead:
    """The judge's own part of a window, in a worker that has not loaded the submission, which could distort it.

    On a GPU the window is a chain of the judge's own calls, whose time is known, as many as a timed one may have. Else it has
    no calls, and the shortest counts: what others compute may lengthen a window by much, and shortens it by little.
    """
    sampling, limit_s, calls = context.sampling, context.sampling.first_call_limit_s, context.most_calls(shape)
    sets = place(context, worker, shape, "public", calls)
    if context.memory.kind == "host":
        poison(sets, calls, seed=secrets.randbits(63))  # touches its pages, as every call does before they are copied
        empty_s = [
            public_window(context, worker, sets, shape, 0, "call", limit_s).elapsed_s for _ in range(1 + sampling.empty_windows)
        ]
        return Overhead(min(empty_s[1:]))  # the first is slow
    own_s = worker.order("capture", limit_s=limit_s)

    def windows(launch_mode: LaunchMode, count: int, alone: int | None = None) -> list[WindowResult]:
        # The judge's own calls read nothing, so the inputs are what the buffers happen to hold.
        unread = [InputSpec("public", 0)] * count
        play = partial(gpu_window.run, worker, sets, unread, lambda: None, launch_mode, sampling.sample, limit_s, alone=alone)
        return retried(play)

    few, count = min(calls // 2, sampling.min_calls), min(calls, OWN_CALLS)
    windows("graph", few)  # slow: it wakes the device
    smaller, own = ([windows("graph", number)[0] for _ in range(sampling.empty_windows)] for number in (few, calls))
    alone = {mode: [each for _ in range(OWN_BATCHES) for each in windows(mode, count, alone=0)] for mode in ALONE_MODES}
    alone_s = {mode: median(window.elapsed_s for window in some) - own_s / calls for mode, some in alone.items()}
    copied_s = 2 * sets.output_layout.set_bytes / (context.device.bandwidth_gb_s * 1e9)
    return Overhead(
        median(window.elapsed_s for window in own) - own_s,
        calls,
        # The least: what else the device does lengthens it, and a submission could be late by as much.
        publish_s=min(window.publish_s for window in own),
        few=few,
        few_publish_s=min(window.publish_s for window in smaller),
        alone_s=alone_s,
        alone_publish_s=median(window.publish_s for some in alone.values() for window in some),
        changes_s=max(0.0, min(alone_s.values()) - copied_s),
    )
