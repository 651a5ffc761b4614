"""The worker: the program that runs a submission in a sandbox of its own, without the answer, the seed, the clock or the verdict.

Started as `python -I worker.py ORDERS REPLIES SOLUTION KIT DRIVER CUPTI`. Orders arrive over the socket ORDERS as JSON (the
worker trusts the judge); replies of one fixed size leave over the pipe REPLIES. Once `solution.py` is imported, the judge
believes nothing that this process reports: a reply only tells the judge when to go on. Before that, it runs calls of the
judge's own, which show what a window costs.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import math
import mmap
import os
import socket
import struct
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

if __name__ == "__main__":  # not in the judge, which reads the statuses below
    gc.disable()  # until `open`: to look for garbage while torch is imported takes a tenth of the time

import torch

REPLY = struct.Struct("<4sIId")
"""magic, the order's number, status, seconds (of the judge's own calls, in reply to `capture`; else 0)."""
MAGIC = b"ARNA"
ORDER_BYTES = 1 << 16

DONE = 0
RAISED = 64
"""The solution raised an exception, which is on stderr."""
UNUSABLE = 65
"""solution.py could not be imported, or defines no `solution`; the reason is on stderr."""
UNCAPTURABLE = 66
"""The calls could not be captured in a CUDA graph. The judge does not use this process any more."""
# Statuses 1 to 63 are the kit's codes for an output that is not what the problem asks for.

ORDERS = (
    "open",
    "load",
    "map",
    "shape",
    "run",
    "capture",
    "choose",
    "wait",
    "trim",
    "start_profiler",
    "profile",
    "count",
)
NAME_CHARACTERS = 400
"""How much of a kernel's name is kept: names of C++ templates run for pages."""
OWN_CALL_CYCLES = 4_000
"""The judge's own call spins for 2 us: long enough to be a kernel, too short for the GPU's clock rate to matter."""
DOUBLINGS = 11
"""How often a reading is tried, behind 0.2 ms, 0.4 ms and so on to 0.2 s of other work."""
READINGS = 9
"""How often the judge's own calls are timed."""


class State:
    """What the worker holds between orders."""

    def __init__(self, solution_path: str, kit: ModuleType, driver_path: str, cupti_path: str) -> None:
        self.kit = kit
        self.solution_path, self.driver_path, self.cupti_path = solution_path, driver_path, cupti_path
        self.solution: Any = None
        self.memory: list[Any] = []
        self.inputs: list[tuple[torch.Tensor, ...]] = []
        self.outputs: list[tuple[torch.Tensor, ...]] = []
        self.driver: Any = None
        self.gate: Any = None
        self.graphs: list[Any] = []
        self.chains: dict[str, Any] = {}
        self.chosen = 0
        """The set of a window of one call."""
        self.cupti: Any = None
        self.recorder: Any = None

    def open(self, order: dict[str, Any], fds: list[int]) -> None:
        """Open the device. torch is already imported."""
        if order["memory"] == "cuda":
            self.driver, self.cupti = load_module(self.driver_path, "cuda_driver"), load_module(self.cupti_path, "arena_cupti")
            self.gate = self.driver.Gate(self.driver.attach(fds[0], self.driver.GATE_BYTES, 0))
        gc.freeze()  # else each capture, and now and then a call, would look through all that torch has made, which takes 0.1 s
        gc.enable()

    def load(self, order: dict[str, Any], fds: list[int]) -> None:
        """Import solution.py, which may compile."""
        self._drop_chains()
        self.solution = self.kit.load_solution(self.solution_path)
        if self.driver is not None:
            gc.collect()
            gc.freeze()

    def map(self, order: dict[str, Any], fds: list[int]) -> None:
        """Map two buffers: one for the inputs, one for the outputs."""
        self._drop_chains()
        self.inputs, self.outputs = [], []
        for old in self.memory:
            old.close()
        attach = HostBytes if self.driver is None else self.driver.attach
        self.memory = [attach(fd, size_bytes, 0) for fd, size_bytes in zip(fds, order["bytes"], strict=True)]

    def shape(self, order: dict[str, Any], fds: list[int]) -> None:
        """Place the sets of a shape in the buffers."""
        self._drop_chains()
        self.inputs, self.outputs = (
            [views(memory.tensor, order[side], index) for index in range(order["sets"])]
            for memory, side in zip(self.memory, ("inputs", "outputs"), strict=True)
        )

    def call(self, first: int, count: int) -> None:
        """One call on each of `count` sets. Before the solution is loaded, these are the judge's own."""
        if self.solution is not None:
            self.kit.call_all(self.solution, self.inputs[first : first + count], self.outputs[first : first + count])
        elif self.driver is not None:
            for _ in range(count):
                torch.cuda._sleep(OWN_CALL_CYCLES)

    def run(self, order: dict[str, Any], fds: list[int]) -> None:
        """`rounds` windows, each of one call on each of the first `calls` sets, or of one on the chosen set.

        On a GPU they wait for the judge at the gate.
        """
        calls, launch_mode = order["calls"], order["launch_mode"]
        if launch_mode == "call":
            self.call(0, calls)
            return
        with torch.cuda.stream(torch.cuda.default_stream()):
            for number in range(order["first"], order["first"] + order["rounds"]):
                self.gate.wait_open(number)
                if launch_mode == "stream":
                    self.call(self.chosen if calls == 1 else 0, calls)
                elif calls:
                    self.chains["one" if calls == 1 else "all"].launch()
                self.gate.report_done(number)

    def wait(self, order: dict[str, Any], fds: list[int]) -> None:
        """Wait for the GPU, where there is one; an error of a kernel shows here."""
        if self.driver is not None:
            torch.cuda.synchronize()

    def trim(self, order: dict[str, Any], fds: list[int]) -> None:
        """Wait as above, and give back the memory that torch keeps for later: other workers need it before this one's turn."""
        self.wait(order, fds)
        if self.driver is not None:
            torch.cuda.empty_cache()

    def capture(self, order: dict[str, Any], fds: list[int]) -> float:
        """Capture each call in a CUDA graph of its own and chain the graphs. Return the seconds of the judge's own calls."""
        pool, side, graphs = torch.cuda.graph_pool_handle(), torch.cuda.Stream(), list[Any]()
        torch.cuda.synchronize()
        gc.collect()  # memory freed during a capture would break it
        with torch.cuda.stream(side):
            for index in range(len(self.inputs)):
                graphs.append(torch.cuda.CUDAGraph(keep_graph=True))
                graphs[-1].capture_begin(pool=pool)
                try:
                    self.call(index, 1)
                finally:
                    graphs[-1].capture_end()
        self.graphs = graphs
        self._chain("all", graphs)
        self._chain("one", graphs[:1])
        return 0.0 if self.solution is not None else min(seconds(self.chains["all"].launch) for _ in range(READINGS))

    def choose(self, order: dict[str, Any], fds: list[int]) -> None:
        """Have windows of one call use this set from now on."""
        self.chosen = order["set"]
        if self.graphs:
            self._chain("one", [self.graphs[self.chosen]])

    def _chain(self, name: str, graphs: list[Any]) -> None:
        """Chain these graphs, in the place of an earlier chain of that name."""
        torch.cuda.synchronize()
        if name in self.chains:
            self.chains.pop(name).close()
        self.chains[name] = self.driver.Chain(graphs)
        self.chains[name].launch()  # the first launch uploads the graph
        torch.cuda.synchronize()

    def _drop_chains(self) -> None:
        if self.chains:
            torch.cuda.synchronize()
        for chain in self.chains.values():
            chain.close()
        self.chains, self.graphs, self.chosen = {}, [], 0

    def _as_timed(self, order: dict[str, Any]) -> None:
        """One call on a set: a launch of the graph of the chosen set, where timed calls are captured."""
        if order["launch_mode"] == "graph":
            self.chains["one"].launch()
        else:
            self.call(order["set"], 1)

    def start_profiler(self, order: dict[str, Any], fds: list[int]) -> None:
        """Load the profiler."""
        self.recorder = self.cupti.Recorder()

    def profile(self, order: dict[str, Any], fds: list[int]) -> None:
        """Make one call and write its kernels to the shared memory, a line each: count and name, by a tab."""
        memory = mmap.mmap(fds[0], 0)
        os.close(fds[0])
        counted = Counter(self.recorder.kernels_of(partial(self._as_timed, order)))
        lines = (f"{count}\t{name[:NAME_CHARACTERS]}\n".encode() for name, count in counted.most_common())
        text = b"".join(lines)[: len(memory) - 1] + b"\0"
        memory[: len(text)] = text

    def count(self, order: dict[str, Any], fds: list[int]) -> None:
        """Make one call between the marks that a profiler around this process waits for, after a kernel that separates calls.

        Without a set only that kernel runs: the first that is counted takes the profiler longest.
        """
        cudart = torch.cuda.cudart()
        cudart.cudaProfilerStart()
        torch.cuda._sleep(1)
        if order["set"] is not None:
            self._as_timed(order)
        torch.cuda.synchronize()
        cudart.cudaProfilerStop()


class HostBytes:
    """The worker's view of a memfd. `device` is for GPU memory only."""

    def __init__(self, fd: int, size_bytes: int, device: int) -> None:
        # Its pages are touched here, so that no timed call pays for them.
        shared = mmap.mmap(fd, size_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        os.close(fd)
        self.tensor = torch.frombuffer(shared, dtype=torch.uint8)

    def close(self) -> None:
        """Do nothing: the mapping ends with its last tensor."""


def seconds(launch: Callable[[], None]) -> float:
    """What these calls take, launched before the first event comes: else a wait for a processor would be part of the time."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for doubled in range(DOUBLINGS):
        torch.cuda._sleep(100 * OWN_CALL_CYCLES << doubled)
        begin.record()
        launch()
        end.record()
        in_time = not begin.query()
        end.synchronize()
        if in_time:
            return float(begin.elapsed_time(end)) / 1e3
    raise RuntimeError("the judge's own calls were not launched while the GPU was busy for 0.2 s: is the machine overloaded?")


def views(buffer: torch.Tensor, layout: dict[str, Any], index: int) -> tuple[torch.Tensor, ...]:
    """The tensors of set `index`, as the judge's memory.py places them."""
    found = []
    for shape, dtype_name, offset in layout["slots"]:
        dtype = getattr(torch, dtype_name)
        start = index * layout["set_bytes"] + offset
        found.append(buffer[start : start + math.prod(shape) * dtype.itemsize].view(dtype).view(shape))
    return tuple(found)


def obey(state: State, order: dict[str, Any], fds: list[int]) -> tuple[int, float]:
    """Carry out one order: (status, device seconds)."""
    orders: dict[str, Callable[[dict[str, Any], list[int]], float | None]]
    orders = {name: getattr(state, name) for name in ORDERS}
    try:
        return DONE, orders[order["op"]](order, fds) or 0.0
    except state.kit.BadOutput as bad:
        print(f"worker: {bad}", file=sys.stderr)
        return int(bad.code), 0.0
    except state.kit.BadSolution as bad:
        print(f"worker: {bad}", file=sys.stderr)
        return UNUSABLE, 0.0
    except Exception:  # the one place where a submission's crash becomes a record
        traceback.print_exc()
        return {"load": UNUSABLE, "capture": UNCAPTURABLE}.get(order["op"], RAISED), 0.0


def serve(state: State, orders: socket.socket, replies: int) -> None:
    """Carry out orders until the judge closes the socket."""
    while True:
        message, fds, _, _ = socket.recv_fds(orders, ORDER_BYTES, 2)
        if not message:
            return
        order = json.loads(message)
        status, device_s = obey(state, order, fds)
        sys.stderr.flush()
        os.write(replies, REPLY.pack(MAGIC, order["seq"], status, device_s))


def load_module(path: str, name: str) -> ModuleType:
    """Import one of the judge's files as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Serve the judge at the other ends of the socket and the pipe."""
    orders, replies, solution_path, kit_path, driver_path, cupti_path = sys.argv[1:7]
    kit = load_module(kit_path, Path(kit_path).stem)
    serve(State(solution_path, kit, driver_path, cupti_path), socket.socket(fileno=int(orders)), int(replies))


if __name__ == "__main__":
    main()
