"""When process 1 of a sandbox takes a thread to be stopped."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arena.sandboxes import SandboxSpec, bwrap
from arena.sandboxes.programs import init

SPIN = "print(flush=True)\nwhile True: pass"
SIBLING = """
import os, signal, sys
child = os.fork()
if child == 0:
    while True: pass
os.kill(child, signal.SIGSTOP)
os.waitid(os.P_PID, child, os.WSTOPPED | os.WEXITED)
print(open(f"/proc/{child}/task/{child}/syscall").read(), end="", flush=True)
os.kill(child, signal.SIGKILL)
"""


YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


def tracing_is_forbidden() -> bool:
    """Whether this machine lets nobody without privileges look at another process, not even at its child."""
    return YAMA.exists() and int(YAMA.read_text()) > 1


@pytest.fixture
def thread() -> Iterator[str]:
    """The folder of a thread that spins."""
    with subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            yield f"/proc/{child.pid}/task/{child.pid}"
        finally:
            child.kill()


def test_who_runs_has_not_left_the_processor_and_who_is_stopped_has(thread: str) -> None:
    assert not init.are_off_processors([thread])
    pid = int(Path(thread).name)
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert init.are_off_processors([thread])


def test_who_is_gone_or_is_not_told_of_keeps_nobody_waiting(tmp_path: Path, thread: str) -> None:
    assert init.are_off_processors([str(tmp_path)])
    assert not init.are_off_processors([str(tmp_path), thread])


@pytest.mark.skipif(bwrap.missing() is not None, reason=f"sandbox: {bwrap.missing()}")
@pytest.mark.skipif(tracing_is_forbidden(), reason=f"{YAMA} forbids it: sandboxes are frozen by what shows, and by their clocks")
def test_the_kernel_tells_a_process_of_a_box_of_another() -> None:
    """Otherwise process 1, which has the same user and no more rights, would have to believe what shows."""
    with bwrap.run(SandboxSpec("worker", ("python", "-c", SIBLING))) as running:
        told = running.stdout.readline()
        assert told and not told.startswith(b"running"), running.stderr.read()
