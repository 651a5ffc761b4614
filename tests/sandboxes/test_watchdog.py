"""The watchdog: what it counts as memory, and its end when it cannot check any more."""

import re
import threading

import pytest

from arena.sandboxes import MIB, workspace_mount
from arena.sandboxes.watchdog import Watchdog, check_memory

SPREAD = """
import os, sys, time
if sys.argv[1] == "memfds":
    kept = [os.memfd_create(str(number)) for number in range(8)]
else:
    kept = [os.open(f"/tmp/{number}", os.O_CREAT | os.O_WRONLY) for number in range(8)]
    for number in range(8): os.unlink(f"/tmp/{number}")
for fd in kept: os.write(fd, bytes(8 << 20))
print("ready", flush=True); time.sleep(60)
"""


@pytest.mark.parametrize("where", ["memfds", "tmp"])
def test_memory_that_no_process_maps_is_counted(bwrap_backend, where):
    with bwrap_backend.ready("python", "-c", SPREAD, where) as running:
        assert re.search(r"held (6[4-9]|[789]\d) MiB of memory, more than 60", check_memory(running.pid, 60 * MIB))
        assert check_memory(running.pid, 120 * MIB) == ""


EMPTY = """
import os, sys, time
for number in range(int(sys.argv[2])): os.close(os.open(f"{sys.argv[1]}/{number}", os.O_CREAT | os.O_WRONLY))
print("ready", flush=True); time.sleep(60)
"""


@pytest.mark.parametrize("place", ["/tmp", "/home/agent", "/dev/shm"])
def test_empty_files_are_counted(bwrap_backend, place):
    """The kernel keeps about 1 KiB for each: 300,000 of them were 300 MiB of which the watchdog saw none."""
    with bwrap_backend.ready("python", "-c", EMPTY, place, "50000") as running:
        assert re.search(r"held (4[89]|[5-9]\d) MiB of memory, more than 45", check_memory(running.pid, 45 * MIB))
    with bwrap_backend.ready("python", "-c", EMPTY, place, "500") as running:
        assert check_memory(running.pid, 45 * MIB) == ""


def test_a_failing_check_ends_the_sandbox_and_is_reported(tmp_path):
    ended = threading.Event()
    watchdog = Watchdog(ended.set, [lambda: str(workspace_mount.free_space(tmp_path / "gone"))])
    assert ended.wait(10)
    watchdog.stop()
    assert watchdog.finding.startswith("its limits could not be checked any more ([Errno 2]")
