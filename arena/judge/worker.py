"""The program that runs a submission, inside its own sandbox: no answer, no seed, no clock and no verdict in reach.

Started as `python -I worker.py FD SOLUTION KIT`. Orders arrive over the socket FD as JSON (the judge is trusted here);
replies leave as packets of one fixed size. From the moment `solution.py` is imported nothing this process says is
believed: a reply only tells the judge when to look at the shared buffers.
"""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import socket
import struct
import sys
import traceback
from types import ModuleType
from typing import Any

import torch

REPLY = struct.Struct("<4sIId")
"""magic, the order's number, status, seconds by the device's own clock (0 on a CPU)."""
MAGIC = b"ARNA"
ORDER_BYTES = 1 << 16

DONE = 0
RAISED = 64
"""The solution raised an exception; it is on stderr."""
UNUSABLE = 65
"""solution.py could not be imported, or defines no `solution`; the reason is on stderr."""
# Statuses 1 to 63 are the kit's codes for an output that is not what the problem asks for.


class HostMemory:
    """The worker's side of the judge's `HostBuffer`s."""

    device = "cpu"

    def view(self, fd: int, size_bytes: int) -> torch.Tensor:
        """Map the buffer; its pages are touched here, so that no timed call pays for them."""
        shared = mmap.mmap(fd, size_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        os.close(fd)
        return torch.frombuffer(shared, dtype=torch.uint8)


class State:
    """What the worker holds between orders."""

    def __init__(self, channel: socket.socket, kit: ModuleType, solution_path: str) -> None:
        self.channel = channel
        self.kit = kit
        self.solution_path = solution_path
        self.memory = HostMemory()
        self.solution: Any = None
        self.inputs: list[tuple[torch.Tensor, ...]] = []
        self.outputs: list[tuple[torch.Tensor, ...]] = []

    def load(self, order: dict[str, Any], fds: list[int]) -> float:
        """Import solution.py, which may compile."""
        self.solution = self.kit.load_solution(self.solution_path)
        return 0.0

    def shape(self, order: dict[str, Any], fds: list[int]) -> float:
        """Map the buffers of a new shape."""
        self.inputs = self.outputs = []
        sets = order["sets"]
        self.inputs, self.outputs = (
            [self._views(buffer, order[side], index) for index in range(sets)]
            for side, buffer in (
                ("inputs", self.memory.view(fds[0], order["inputs"]["set_bytes"] * sets)),
                ("outputs", self.memory.view(fds[1], order["outputs"]["set_bytes"] * sets)),
            )
        )
        return 0.0

    def run(self, order: dict[str, Any], fds: list[int]) -> float:
        """One window: the first `calls` sets, one call each, every result copied into its shared buffer."""
        calls = order["calls"]
        self.kit.call_all(self.solution, self.inputs[:calls], self.outputs[:calls])
        return 0.0

    def _views(self, buffer: torch.Tensor, layout: dict[str, Any], index: int) -> tuple[torch.Tensor, ...]:
        views = []
        for shape, dtype_name, offset in layout["slots"]:
            dtype = getattr(torch, dtype_name)
            start = index * layout["set_bytes"] + offset
            count = 1
            for size in shape:
                count *= size
            views.append(buffer[start : start + count * dtype.itemsize].view(dtype).view(shape))
        return tuple(views)


def serve(state: State) -> None:
    """Take orders until the judge hangs up."""
    kit = state.kit
    while True:
        message, fds, _, _ = socket.recv_fds(state.channel, ORDER_BYTES, 2)
        if not message:
            return
        order = json.loads(message)
        status, device_s = DONE, 0.0
        try:
            device_s = {"load": state.load, "shape": state.shape, "run": state.run}[order["op"]](order, fds)
        except kit.BadOutput as bad:
            print(f"worker: {bad}", file=sys.stderr)
            status = bad.code
        except kit.BadSolution as bad:
            print(f"worker: {bad}", file=sys.stderr)
            status = UNUSABLE
        except Exception:  # the one place where a submission's crash becomes a record
            traceback.print_exc()
            status = UNUSABLE if order["op"] == "load" else RAISED
        sys.stderr.flush()
        state.channel.send(REPLY.pack(MAGIC, order["seq"], status, device_s))


def main() -> None:
    fd, solution_path, kit_path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    spec = importlib.util.spec_from_file_location("benchmark", kit_path)
    assert spec and spec.loader
    kit = importlib.util.module_from_spec(spec)
    sys.modules["benchmark"] = kit
    spec.loader.exec_module(kit)
    serve(State(socket.socket(fileno=fd), kit, solution_path))


if __name__ == "__main__":
    main()
