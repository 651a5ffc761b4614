"""What process 1 of a box takes a thread's state to be."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arena.sandboxes import init

STATS = [b"7 (sleep) T 1 7 7", b"7 (a) R) T 1 7 7"]


@pytest.mark.parametrize("stat", STATS)
@pytest.mark.parametrize(("call", "state"), [(b"running\n", "R"), (b"35 0x7f 0x0\n", "T"), (b"-1 0x0 0x0\n", "T")])
def test_who_has_not_left_the_processor_still_runs(tmp_path: Path, stat: bytes, call: bytes, state: str) -> None:
    (tmp_path / "stat").write_bytes(stat)
    (tmp_path / "syscall").write_bytes(call)
    assert init.state(str(tmp_path)) == state


def test_where_the_kernel_does_not_tell_what_shows_counts(tmp_path: Path) -> None:
    (tmp_path / "stat").write_bytes(STATS[0])
    assert init.state(str(tmp_path)) == "T"


@pytest.mark.parametrize("before", ["", "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"], ids=["", "undumpable"])
def test_a_real_process(before: str) -> None:
    code = f"{before}print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        thread = f"/proc/{child.pid}/task/{child.pid}"
        assert init.state(thread) == "R"
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED)
        assert init.state(thread) == "T"
        child.kill()
