"""When process 1 of a sandbox counts a thread as stopped."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import needs_sandbox

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
    """Whether this machine forbids unprivileged processes to inspect others, even their own children."""
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


def test_only_a_stopped_thread_is_off_its_processor(thread: str) -> None:
    assert not init.are_off_processors([thread])
    pid = int(Path(thread).name)
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert init.are_off_processors([thread])


def test_an_ended_or_unreadable_thread_does_not_delay(tmp_path: Path, thread: str) -> None:
    assert init.are_off_processors([str(tmp_path)])
    assert not init.are_off_processors([str(tmp_path), thread])


@needs_sandbox
@pytest.mark.skipif(tracing_is_forbidden(), reason=f"{YAMA} forbids it: a freeze goes by shown states and by clocks")
def test_a_process_can_read_the_state_of_another_inside() -> None:
    """Otherwise process 1, which has the same user and no more rights, would have to believe the shown state."""
    with bwrap.run(SandboxSpec("worker", ("python", "-c", SIBLING))) as running:
        state = running.stdout.readline()
        assert state and not state.startswith(b"running"), running.stderr.read()
