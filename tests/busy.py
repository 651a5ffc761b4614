"""Processes that keep the machine busy."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

SPIN = "print(flush=True)\nwhile True: pass"


@contextmanager
def spinning(count: int) -> Iterator[list[int]]:
    """Children that use a processor each, for the length of the block; their pids."""
    with ExitStack() as stack:
        pids = []
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
            pids.append(process.pid)
        yield pids
