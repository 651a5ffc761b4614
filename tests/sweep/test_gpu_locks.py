"""Two sweeps never share a GPU: its lock is refused in words, and falls with its holder."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arena.errors import ArenaError, UsageError
from arena.sweep import gpu_locks

HOLD = """import sys, time
from pathlib import Path
from arena.sweep import gpu_locks
with gpu_locks.held({0: "GPU-a", 1: "GPU-b"}, "first", Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_sweep_on_a_gpu_is_refused(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as first:
        assert first.stdout and first.stdout.readline() == b"held\n"
        words = rf"GPU 5 \(GPU-b\) is in use by sweep first \(process {first.pid}\): wait for its end"
        with pytest.raises(UsageError, match=words), gpu_locks.held({5: "GPU-b", 6: "GPU-c"}, "second", tmp_path):
            pass
        with gpu_locks.held({6: "GPU-c"}, "second", tmp_path):
            pass
        first.send_signal(signal.SIGKILL)
    with gpu_locks.held({5: "GPU-b"}, "second", tmp_path):
        assert (tmp_path / "arena-GPU-b").read_text().startswith("sweep second (process ")


def test_a_lock_is_no_way_to_write_elsewhere(tmp_path: Path) -> None:
    """The attack: a link in the folder of all users, where root's sweep would empty the file that it names."""
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "arena-GPU-a").symlink_to(tmp_path / "precious")
    with pytest.raises(ArenaError, match="its lock"), gpu_locks.held({0: "GPU-a"}, "s", tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_gpu_that_is_not_there_has_no_lock() -> None:
    with pytest.raises(ArenaError, match="GPU 99: torch cannot tell which they are: "):
        gpu_locks.uuids(frozenset({99}))
