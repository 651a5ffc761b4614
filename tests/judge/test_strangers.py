"""Who computes on a GPU beside the judge: a submission's processes, which are in a sandbox, or others."""

import os
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import psutil
from command import needs_sandbox

from arena.judge.device.nvml import Gpu


def gpu_of(*pids: int) -> Gpu:
    """A GPU on which the driver reports these processes."""
    processes = [SimpleNamespace(pid=pid) for pid in pids]
    library: Any = SimpleNamespace(NVMLError=OSError, nvmlDeviceGetComputeRunningProcesses=lambda handle: processes)
    return Gpu(library, None)


@needs_sandbox
def test_a_process_in_a_sandbox_is_no_stranger() -> None:
    bwrap = shutil.which("bwrap")
    assert bwrap
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    person = subprocess.Popen(sleep)
    sandbox = subprocess.Popen([bwrap, "--unshare-pid", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", *sleep])
    try:
        until_s = time.monotonic() + 10
        while len(inside := psutil.Process(sandbox.pid).children(recursive=True)) < 2:
            assert time.monotonic() < until_s, "the sandbox has not started"
            time.sleep(0.01)
        gpu = gpu_of(os.getpid(), person.pid, ended.pid, *(process.pid for process in inside))
        assert gpu.strangers() == [person.pid]
        assert set(gpu.other_processes()) > {person.pid, ended.pid}
    finally:
        for process in (person, sandbox):
            process.kill()
            process.wait()


def test_a_driver_that_reports_no_processes_has_no_strangers() -> None:
    silent = Gpu(SimpleNamespace(NVMLError=OSError), None)
    assert silent.strangers() == []
