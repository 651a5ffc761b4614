"""The worker: the program that runs a submission in a sandbox of its own, without the answer, the seed, the clock or the verdict.

Started as `python -I worker.py FD SOLUTION KIT VMM`. Orders arrive over the socket FD as JSON (the worker trusts the judge);
replies leave as packets of one fixed size. Once `solution.py` is imported, the judge believes nothing that this process reports:
a reply only tells the judge when to look at the shared buffers. The device's time counts only as far as the judge's own
clock allows.
"""

from __future__ import annotations

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
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

REPLY = struct.Struct("<4sIId")
"""magic, the order's number, status, seconds by the device's own clock (0 on a CPU)."""
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

ORDERS = ("open", "load", "shape", "run", "capture", "names", "count")
NAME_CHARACTERS = 400
"""How much of a kernel's name is kept: names of C++ templates run for pages."""
SPIN_CYCLES = 200_000
"""The GPU spins for 0.1 ms before it replays a graph, so that the time between the events is the graph's alone.

There is no spin where the submission's own Python runs: it could work on another stream during the spin, before the first event.
An empty window has none either. So the judge's clock keeps what the spin costs, and sees all work done during it.
"""


class State:
    """What the worker holds between orders."""

    def __init__(self, channel: socket.socket, solution_path: str, kit: ModuleType, vmm_path: str) -> None:
        self.channel, self.kit = channel, kit
        self.solution_path, self.vmm_path = solution_path, vmm_path
        self.solution: Any = None
        self.memory: list[Any] = []
        self.inputs: list[tuple[torch.Tensor, ...]] = []
        self.outputs: list[tuple[torch.Tensor, ...]] = []
        self.given = False
        self.graph: torch.cuda.CUDAGraph | None = None

    def open(self, order: dict[str, Any], fds: list[int]) -> None:
        """Open the device. torch is already imported."""
        if order["memory"] == "cuda":
            torch.empty(1, device="cuda")

    def load(self, order: dict[str, Any], fds: list[int]) -> None:
        """Import solution.py, which may compile."""
        self.solution = self.kit.load_solution(self.solution_path)

    def shape(self, order: dict[str, Any], fds: list[int]) -> None:
        """Map the buffers of a new shape."""
        self.graph, self.inputs, self.outputs = None, [], []
        self.given = order["given"]
        for old in self.memory:
            old.close()
        sides = [order["inputs"], order["outputs"]]
        attach = HostBytes if order["memory"] == "host" else load_module(self.vmm_path, "vmm").attach
        self.memory = [attach(fd, side["set_bytes"] * order["sets"], 0) for fd, side in zip(fds, sides, strict=True)]
        self.inputs, self.outputs = (
            [views(memory.tensor, side, index) for index in range(order["sets"])]
            for memory, side in zip(self.memory, sides, strict=True)
        )

    def call(self, count: int) -> None:
        """One call on each of the first `count` sets."""
        self.kit.call_all(self.solution, self.inputs[:count], self.outputs[:count], self.given)

    def run(self, order: dict[str, Any], fds: list[int]) -> float:
        """One window: the first `calls` sets, one call each, every result written or copied into its shared buffer."""
        calls, launch_mode = order["calls"], order["launch_mode"]
        if launch_mode == "call":
            self.call(calls)
            return 0.0
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if launch_mode == "graph" and calls:
            torch.cuda._sleep(SPIN_CYCLES)
        begin.record()
        if launch_mode == "stream":
            self.call(calls)
        elif self.graph is not None:
            self.graph.replay()
        end.record()
        if self.given:  # Work still under way on a stream that this one does not wait for is late, as it would be for a copy.
            end.synchronize()
        else:
            torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def capture(self, order: dict[str, Any], fds: list[int]) -> None:
        """Capture the calls on all sets in one CUDA graph."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.call(len(self.inputs))
        graph.replay()  # the first launch uploads the graph
        torch.cuda.synchronize()
        self.graph = graph

    def names(self, order: dict[str, Any], fds: list[int]) -> None:
        """Make one call under torch's profiler. Write its kernels to the shared memory, a line each: count, tab, name."""
        from torch.profiler import ProfilerActivity, profile

        memory = mmap.mmap(fds[0], 0)
        os.close(fds[0])
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
            self.call(1)
            torch.cuda.synchronize()
        counted = Counter(event.name for event in seen.events() if event.device_type.name == "CUDA")
        lines = (f"{count}\t{name[:NAME_CHARACTERS]}\n".encode() for name, count in counted.most_common())
        text = b"".join(lines)[: len(memory) - 1]
        memory[: len(text)] = text

    def count(self, order: dict[str, Any], fds: list[int]) -> None:
        """Make one call between the marks that a profiler around this process waits for, after a kernel that separates calls."""
        cudart = torch.cuda.cudart()
        cudart.cudaProfilerStart()
        torch.cuda._sleep(1)
        self.call(1)
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


def serve(state: State) -> None:
    """Carry out orders until the judge closes the socket."""
    while True:
        message, fds, _, _ = socket.recv_fds(state.channel, ORDER_BYTES, 2)
        if not message:
            return
        order = json.loads(message)
        status, device_s = obey(state, order, fds)
        sys.stderr.flush()
        state.channel.send(REPLY.pack(MAGIC, order["seq"], status, device_s))


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
    """Serve the judge at the other end of the socket."""
    fd, solution_path, kit_path, vmm_path = sys.argv[1:5]
    kit = load_module(kit_path, Path(kit_path).stem)
    serve(State(socket.socket(fileno=int(fd)), solution_path, kit, vmm_path))


if __name__ == "__main__":
    main()
