"""A window on a GPU, timed by the device's clock in the judge's own stream: the worker reports no time.

The worker's stream waits at a gate (worker/cuda_driver.py). In one uninterrupted sequence, the judge's stream publishes the
inputs, notes the time, opens the gate, waits until the worker's stream reports that its calls are over, copies a secret sample
of the outputs, and notes the time again. What this costs beside the calls is measured with calls of the judge's own, in the same
worker before it loads the submission.

Contexts share a GPU by time slices. So kernels of the worker that run before the gate opens lengthen the publishing, which counts
(overhead.py). Kernels that run after a false report delay the copy of the sample, or their work is missing from it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from arena.judge.device.memory import Gate
from arena.judge.rejection import Rejection
from arena.judge.sets import Disturbed, InputSpec, Sets, WindowResult, choose, poison_set
from arena.judge.worker_client import Worker
from arena.schema import LaunchMode

FILL_S, MOST_FILL_S = 100e-6, 0.02
"""How long uncaptured calls may fill the queue behind the closed gate: for each call, and in all."""
QUEUE_LIMIT_S = 15.0
"""For the launches of captured calls behind the closed gate. They take milliseconds, unless their kernels do not fit there."""
SILENT_S = 2.0
"""The judge then asks the worker whether the GPU reports an error."""
POLL_S = 50e-6


class Unqueued(Rejection):
    """The captured calls of a window do not fit into the GPU's queue behind the closed gate. This spoils the worker."""


@dataclass
class _Times:
    """One round's marks in the judge's stream."""

    begin: torch.cuda.Event
    opened: torch.cuda.Event
    end: torch.cuda.Event

    @classmethod
    def made(cls) -> _Times:
        """With events that the driver has made: torch has it do so when they are first recorded."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        for event in events:
            event.record()
        return cls(*events)

    def seconds(self) -> tuple[float, float]:
        """(of the calls and the judge's own part, of publishing)."""
        return self.opened.elapsed_time(self.end) / 1e3, self.begin.elapsed_time(self.opened) / 1e3


def run(
    worker: Worker,
    sets: Sets,
    inputs: Sequence[InputSpec],
    prepare: Callable[[], None],
    launch_mode: LaunchMode,
    sample: int,
    limit_s: float,
    *,
    alone: int | None = None,
    audited: Collection[int] = (),
) -> list[WindowResult]:
    """One window of a call on each of `inputs`, or one for each between the first and the last, all on the set `alone`.

    Each begins with a cold cache. The results hold the outputs of `audited` inputs and of a secret `sample` of the others.
    Where this raises, the judge's stream may wait for ever: it is free once the worker is dead and `Gate.release` was called.
    `prepare` makes the inputs in staging. Disturbed when the submission used a processor during a captured window.
    """
    gate = worker.gate
    assert gate is not None
    rounds, calls = (1, len(inputs)) if alone is None else (len(inputs), 1)
    first, captured = gate.next(rounds), launch_mode == "graph"
    order = partial(worker.send, "run", calls=calls, rounds=rounds, first=first, launch_mode=launch_mode)
    if captured:  # The launches wait at the gate, and the worker's processes stay stopped until the window is over.
        worker.resume()
        order()
        _await_queued(worker, min(limit_s, QUEUE_LIMIT_S), calls)
    worker.freeze()
    worker.reject_stray_packets()
    prepare()
    sets.memory.forget_persisting()
    if not captured:
        order()
        worker.resume()
        time.sleep(min(FILL_S * len(inputs), MOST_FILL_S))
    # The first call alone finds the GPU idle, and takes some 0.1 ms longer; the last takes 2 us less. They do not count.
    counted = range(len(inputs)) if alone is None else range(1, len(inputs) - 1)
    others = [index for index in counted if index not in audited]
    chosen = [*audited, *(others[place] for place in choose(len(others), sample))]
    # Every call alone has its output copied, so that its time ends with a copy.
    copied = chosen if alone is None else range(rounds)
    kept = {index: tuple(torch.empty_like(view) for view in sets.output(0)) for index in copied}
    # Here for the first time, so that below no code is loaded and no memory taken, which may wait for the device.
    sets.memory.make_cold()
    if alone is not None:
        poison_set(sets, alone)
    times = [_Times.made() for _ in range(rounds)]
    with gate.queued():
        for index, each in enumerate(times):
            _round(gate, sets, first + index, each, range(calls) if alone is None else [index], kept, alone=alone)
    if not captured:
        worker.reply("run", limit_s)
    _wait(times[-1].end, worker, limit_s)
    gate.passed()
    if captured and worker.frozen and (ran_ns := worker.ran_ns()):
        raise Disturbed(
            "cheated", f"A process of the submission ran ({ran_ns / 1e6:.3g} ms) while the worker was stopped in a window"
        )
    worker.freeze()
    results = []
    for index in [0] if alone is None else counted:
        outputs = {number: kept[number] for number in chosen if alone is None or number == index}
        unsampled = kept[index] if alone is not None and index not in outputs else ()
        results.append(WindowResult(*times[index].seconds(), inputs, outputs, in_place=alone is None, unsampled=unsampled))
    return results


def _await_queued(worker: Worker, limit_s: float, calls: int) -> None:
    """Wait until the worker has launched a window's captured calls. Unqueued when it does not return from that."""
    try:
        worker.reply("run", limit_s)
    except Rejection as rejection:
        if rejection.verdict != "timed_out" or worker.overdue:
            raise
        text = f"The launches of {calls} captured calls did not return in {limit_s:.4g} s: too many kernels for the GPU's queue"
        raise Unqueued("timed_out", text) from None


def _round(
    gate: Gate,
    sets: Sets,
    number: int,
    times: _Times,
    indices: Sequence[int],
    kept: dict[int, tuple[torch.Tensor, ...]],
    *,
    alone: int | None,
) -> None:
    """Queue one window in the judge's stream: publish these sets, open the gate, wait for the worker's, copy the sample.

    A window of one call has its inputs and outputs in the set `alone`.
    """
    set_bytes = sets.input_layout.set_bytes
    source = sets.staged[indices[0] * set_bytes :][: len(indices) * set_bytes] if indices else sets.staged[:0]
    times.begin.record()  # before anything that a kernel of the last round could run beside
    if alone is not None:
        poison_set(sets, alone)
    sets.inputs.bytes[(alone or 0) * set_bytes :][: len(source)].copy_(source)
    sets.memory.make_cold()  # else a worker could find the sets that were published last in the cache
    times.opened.record()
    gate.open(number)
    gate.wait_done(number)
    for index in kept.keys() & set(indices):
        for target, view in zip(kept[index], sets.output(index if alone is None else alone), strict=True):
            target.copy_(view)
    times.end.record()


def _wait(end: torch.cuda.Event, worker: Worker, limit_s: float) -> None:
    """Wait until the judge's stream has come to `end`; Rejection when the worker's never reports that its calls are over."""
    until_s, silent_s = time.monotonic() + limit_s, time.monotonic() + SILENT_S
    while not end.query():
        time.sleep(POLL_S)
        if time.monotonic() > silent_s:
            worker.resume()
            worker.order("wait", limit_s=limit_s)  # an error of a kernel shows here
            silent_s = math.inf
        if time.monotonic() > until_s:
            raise Rejection("timed_out", f"The calls of a window took longer than {limit_s:.4g} s on the GPU")
