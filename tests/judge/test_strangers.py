"""Who computes on a GPU beside the judge: a submission's processes, which are in a sandbox, or others."""

import os
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from command import needs_sandbox

from arena.judge.device.nvml import Gpu


def gpu_of(*pids: int, used_bytes: int | None = 1 << 30) -> Gpu:
    """A GPU on which the driver reports these processes, each with so much memory."""
    processes = [SimpleNamespace(pid=pid, usedGpuMemory=used_bytes) for pid in pids]
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


@pytest.mark.parametrize(("restricted", "free"), [(1, False), (0, True), (None, False)])
def test_clocks_that_any_user_may_set_are_seen(restricted: int | None, free: bool) -> None:
    def restriction(handle: object, api: int) -> int:
        if restricted is None:
            raise OSError("not supported")
        return restricted

    library: Any = SimpleNamespace(
        NVMLError=OSError, NVML_RESTRICTED_API_SET_APPLICATION_CLOCKS=0, nvmlDeviceGetAPIRestriction=restriction
    )
    assert Gpu(library, None).clocks_are_free() == free


@pytest.mark.parametrize(("used_bytes", "counts"), [(1 << 30, True), (1 << 29, False), (None, True)])
def test_a_process_with_little_memory_took_none(used_bytes: int | None, counts: bool) -> None:
    """One whose memory the driver does not report may have taken much."""
    person = os.getppid()
    gpu = gpu_of(person, used_bytes=used_bytes)
    assert gpu.other_processes() == [person]
    assert gpu.other_processes(1 << 30) == ([person] if counts else [])


def test_a_driver_that_reports_no_processes_has_no_strangers() -> None:
    silent = Gpu(SimpleNamespace(NVMLError=OSError), None)
    assert silent.strangers() == []
