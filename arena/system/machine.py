"""This computer in words, for a prompt, a score or `arena doctor`. Imports no torch and starts no process."""

import os
import platform
from pathlib import Path


def processor() -> str:
    """The processor's name from the kernel."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.machine()


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def describe() -> str:
    """The machine in one line."""
    return f"{processor()}, {cores()} cores, Linux {platform.release()} {platform.machine()}, Python {platform.python_version()}"
