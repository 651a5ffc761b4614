"""One machine of a sweep: the processes at work on it, what they say, and what they are told."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

LOG = "children.log"


class Said(NamedTuple):
    """A line of a process."""

    number: int
    line: dict[str, Any]


class Ended(NamedTuple):
    """The end of a process: nothing that it held is held any more."""

    number: int
    code: int


@dataclass
class Process:
    """A process at work."""

    process: subprocess.Popen[bytes]
    said: bytearray = field(default_factory=bytearray)


class Node:
    """Starts processes on this machine and reads from them. A number names one of them; no number is used twice."""

    def __init__(self, folder: Path) -> None:
        """`folder` gets what the processes write on standard error."""
        self._folder = folder
        self._processes: dict[int, Process] = {}
        self._selector = selectors.DefaultSelector()

    def start(self, number: int, order: Mapping[str, object]) -> None:
        """Start a process with this order. OSError when there is no memory, no process or no disk left for it."""
        command = [sys.executable, "-m", "arena.sweep.child", str(os.getpid())]
        with (self._folder / LOG).open("ab") as log:
            # A session of its own: Ctrl-C is for the sweep alone.
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._processes[number] = Process(process)
        self._selector.register(process.stdout, selectors.EVENT_READ, number)
        self.tell(number, order)

    def tell(self, number: int, line: Mapping[str, object]) -> None:
        """Write a line to a process. One that has ended is noticed by `poll`."""
        process = self._processes[number].process
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(line).encode() + b"\n")
            process.stdin.flush()

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
