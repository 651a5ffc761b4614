"""Two sweeps or commands never share a GPU: its lock is refused in words, and falls with its holder."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import copy, needs_sandbox

from arena import catalog
from arena.errors import ArenaError, UsageError
from arena.schema import Sweep
from arena.system import gpu_locks

HOLD = """import sys, time
from pathlib import Path
from arena.system import gpu_locks
with gpu_locks.held({0: "GPU-a", 1: "GPU-b"}, "sweep first", Path(sys.argv[1])):
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
        assert (tmp_path / "arena-GPU-b").read_text().startswith("second (process ")


def test_a_lock_is_no_way_to_write_elsewhere(tmp_path: Path) -> None:
    """The attack: a link in the folder of all users, where root's sweep would empty the file that it names."""
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "arena-GPU-a").symlink_to(tmp_path / "precious")
    with pytest.raises(ArenaError, match="its lock"), gpu_locks.held({0: "GPU-a"}, "s", tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "kept"


def test_all_users_lock_in_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root could write where others cannot, and one user has XDG_RUNTIME_DIR or TMPDIR in one shell and not in another."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "roots").mkdir(mode=0o755)
    assert gpu_locks.folder(tmp_path / "roots") == gpu_locks.folder(tmp_path / "none") == Path("/tmp")
    (tmp_path / "roots").chmod(0o1777)
    assert gpu_locks.folder(tmp_path / "roots") == tmp_path / "roots"


@pytest.mark.parametrize("place", ["folder", "pipe", "nowhere"])
def test_a_lock_that_cannot_be_made_is_said_in_words(tmp_path: Path, place: str) -> None:
    root, lock = tmp_path, tmp_path / "arena-GPU-a"
    match place:
        case "folder":
            lock.mkdir()
        case "pipe":
            os.mkfifo(lock)
        case "nowhere":
            root = tmp_path / "none"
    with pytest.raises(ArenaError, match=r"GPU 0: its lock .*: "), gpu_locks.held({0: "GPU-a"}, "s", root):
        pass


COMMANDS = """
import sys
from arena import plan, run_cell
from arena.cli import main
from arena.errors import UsageError
from arena.system import gpu_locks

run = run_cell.play_cell(plan.plan("paged_attention", "nop", hardware="cpu", budget="10s"))

def held_by(holder, hardware, gpus):
    raise UsageError(f"GPU {sorted(gpus)} is in use, {holder} on {hardware.name}")

gpu_locks.held_by = held_by
with open("solution.py", "w") as file:
    file.write("x = 1")
cell = ["-p", "paged_attention", "--hardware", "cpu"]
for words in (["run", "-m", "nop", *cell], ["score", "solution.py", *cell], ["judge", run]):
    sys.argv = ["arena", *words]
    try:
        main()
    except SystemExit as end:
        print(end.code)
"""


@pytest.mark.slow
@needs_sandbox
def test_commands_of_one_score_take_the_lock_too(tmp_path: Path) -> None:
    done = copy(tmp_path).python(COMMANDS)
    assert done.out.split() == ["2", "2", "2"], done.err
    for command in ("run", "score", "judge"):
        assert f"GPU [0] is in use, arena {command} on cpu" in done.err


def test_a_gpu_that_is_not_there_has_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep ends there. A command of one score goes on to its look at the machine, which says more."""
    pytest.importorskip("torch")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    hardware, words = catalog.hardware("h200"), "GPU 0: CUDA cannot tell which they are: "
    sweep = Sweep.model_validate({"name": "s", "cells": [{"models": ["m"], "problems": "all"}], "hardware": "h200"})
    with pytest.raises(ArenaError, match=words), gpu_locks.held_for(sweep, hardware):
        pass
    went_on = []
    with gpu_locks.held_by("arena score", hardware, frozenset({0})):
        went_on.append(True)
    assert went_on


DRIVER = """
int cuInit(unsigned flags) { return flags; }
int cuDeviceGet(int *gpu, int number) { return number > 1 ? 101 : (*gpu = 7 + number, 0); }
int cuDeviceGetUuid(unsigned char *uuid, int gpu) {
    for (int byte = 0; byte < 16; byte++) uuid[byte] = 16 * byte + gpu;
    return 0;
}
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of CUDA's driver, which no machine without a GPU has: two GPUs."""
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))


def test_gpus_have_the_uuids_that_the_driver_tells(driver: None) -> None:
    first, second = "GPU-07172737-4757-6777-8797-a7b7c7d7e7f7", "GPU-08182838-4858-6878-8898-a8b8c8d8e8f8"
    assert gpu_locks.uuids(frozenset({1, 0})) == {0: first, 1: second}


def test_a_gpu_that_the_driver_does_not_have(driver: None) -> None:
    with pytest.raises(ArenaError, match="GPU 1, 2: CUDA cannot tell which they are: cuDeviceGet: CUDA error 101"):
        gpu_locks.uuids(frozenset({1, 2}))
