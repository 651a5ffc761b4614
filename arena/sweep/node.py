"""One machine of a sweep: the processes at work on it, what they say, and what they are told."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from arena.sweep import grid
from arena.sweep.broker import Places

LOG = "children.log"
FULL = (errno.ENOSPC, errno.EROFS, errno.EDQUOT)
"""What a disk that is full, or can only be read, answers."""


class Said(NamedTuple):
    """A line of a process."""

    number: int
    line: dict[str, Any]


class Ended(NamedTuple):
    """The end of a process: nothing that it held is held any more."""

    number: int
    code: int
    lost: str = ""
    """Why its machine is given up, where that is the reason: then it is no fault of the trial."""


class Machines(Protocol):
    """The machines of a sweep, and the processes on them. A number names one process; no number is used twice."""

    def places(self) -> Mapping[str, Places]:
        """What there is to give out, by the machine's name. It may change with every call."""

    def start(self, machine: str, number: int, order: Mapping[str, Any]) -> None:
        """Start a process with this order there. OSError when it cannot be started."""

    def tell(self, number: int, line: Mapping[str, object]) -> None:
        """Write a line to a process, unless it has ended."""

    def poll(self, limit_s: float) -> list[Said | Ended]:
        """What happens within that time, as soon as anything does. OSError when the disk has no room for it: it comes again."""

    def kill(self) -> None:
        """End every process."""


class OneMachine:
    """This machine alone."""

    def __init__(self, folder: Path, places: Places) -> None:
        self._node = Node(folder, places)
        self._places = {"": places}
        self.tell, self.poll, self.kill = self._node.tell, self._node.poll, self._node.kill

    def places(self) -> Mapping[str, Places]:
        """Always the same."""
        return self._places

    def start(self, machine: str, number: int, order: Mapping[str, Any]) -> None:
        """Start a process here. OSError."""
        self._node.start(number, order)


@dataclass
class Process:
    """A process at work."""

    process: subprocess.Popen[bytes]
    said: bytearray = field(default_factory=bytearray)


class Node:
    """Starts processes on this machine and reads from them. A number names one of them; no number is used twice."""

    def __init__(self, folder: Path, places: Places) -> None:
        """`folder` gets what the processes write on standard error."""
        self._folder, self._places = folder, places
        self._agent_cpus, self._judge_cpus = grid.cores(places)
        self._processes: dict[int, Process] = {}
        self._selector = selectors.DefaultSelector()

    def start(self, number: int, order: Mapping[str, Any]) -> None:
        """Start a process with this order, and this machine's part of it: processors, memory, and what is beside a score.

        OSError when there is no memory, no process or no disk left for it.
        """
        cpus = grid.judge_cores(self._places, order["gpu"]) if "judge" in order else self._agent_cpus
        order = {**order, "cpus": sorted(cpus) if cpus else None}
        if "judge" in order:
            order["beside"] = self._beside()
        elif "play" in order:
            order["play"] = {**order["play"], "parallel": grid.shares(self._places)}
        # -P: not an `arena` in the folder where this was started, such as another checkout.
        command = [sys.executable, "-P", "-m", "arena.sweep.child", str(os.getpid())]
        with (self._folder / LOG).open("ab") as log:
            # A session of its own: Ctrl-C is for the sweep alone.
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._processes[number] = Process(process)
        self._selector.register(process.stdout, selectors.EVENT_READ, number)
        self.tell(number, order)

    def tell(self, number: int, line: Mapping[str, object]) -> None:
        """Write a line to a process, unless it has ended: `poll` notices that."""
        if (one := self._processes.get(number)) is None:
            return
        assert one.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            one.process.stdin.write(json.dumps(line).encode() + b"\n")
            one.process.stdin.flush()

    def poll(self, limit_s: float) -> list[Said | Ended]:
        """What happens within that time, as soon as anything does."""
        happened: list[Said | Ended] = []
        if not self._processes:
            time.sleep(limit_s)
        for key, _ in self._selector.select(limit_s) if self._processes else ():
            number, one = key.data, self._processes[key.data]
            assert one.process.stdout is not None
            if chunk := os.read(one.process.stdout.fileno(), 1 << 16):
                *whole, rest = bytes(one.said + chunk).split(b"\n")
                one.said[:] = rest
                happened += [Said(number, json.loads(line)) for line in whole]
            else:
                happened.append(Ended(number, self._close(number)))
        return happened

    def _beside(self) -> str:
        """What is at work while a score is taken, for its record."""
        places = self._places
        if not places.judges:
            others = f", up to {len(places.agents) - 1} other scores on GPUs of their own" * (len(places.agents) > 1)
            return f"waves: no session of its sweep{others}"
        cores = ", on other cores" * bool(self._judge_cpus)
        return f"apart: up to {places.sessions} sessions of its sweep, on other GPUs{cores}"

    def kill(self) -> None:
        """End every process. Their sandboxes end with them."""
        for number in list(self._processes):
            self._processes[number].process.kill()
            self._close(number)

    def _close(self, number: int) -> int:
        process = self._processes.pop(number).process
        assert process.stdout is not None and process.stdin is not None
        self._selector.unregister(process.stdout)
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        return process.wait()
