"""Snapshots of the solution, also in a hostile workspace."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from arena.agents.snapshots import Snapshots, stored


def watch(tmp_path: Path, **limits) -> tuple[Path, Path, list[tuple[str, dict]], Snapshots]:
    work, kept, logged = tmp_path / "work", tmp_path / "snapshots", []
    work.mkdir()
    kept.mkdir()
    return work, kept, logged, Snapshots(work, kept, lambda kind, **data: logged.append((kind, data)), period_s=0.05, **limits)


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def counts(snapshots: Snapshots, states: int) -> Callable[[], bool]:
    """Whether so many states have been kept."""
    return lambda: snapshots.count == states


def test_snapshots_keep_each_state_with_its_time(tmp_path: Path) -> None:
    work, kept, logged, snapshots = watch(tmp_path)
    with snapshots:
        # Writing the same content again adds no state; returning to an earlier content adds one.
        for number, states in ((1, 1), (2, 2), (2, 2), (1, 3)):
            (work / "solution.py").write_text(f"x = {number}\n")
            until(counts(snapshots, states))
            time.sleep(0.2)
        (work / "solution.py").write_text("x = 4\n")  # seen at the end of the block
    assert [item.path.read_text() for item in stored(kept)] == ["x = 1\n", "x = 2\n", "x = 1\n", "x = 4\n"]
    assert snapshots.count == 4
    assert not logged
    times = [item.at_s for item in stored(kept)]
    assert times == sorted(times)
    assert times[0] < 1 and 0.8 <= times[-1] < 10
    assert all(len(item.path.name) == len("00001000_01234567.py") for item in stored(kept))


def test_torn_snapshot_is_left_out(tmp_path: Path) -> None:
    work, kept, _, snapshots = watch(tmp_path)
    (work / "solution.py").write_text("x = 1\n")
    with snapshots:
        pass
    (kept / "00000500_01234567.py").write_text("x =")
    assert [item.path.read_text() for item in stored(kept)] == ["x = 1\n"]


@pytest.mark.parametrize(("limits", "count"), [({"max_count": 2}, 2), ({"max_bytes": 13}, 2)])
def test_snapshots_stop_at_their_cap(limits: dict[str, int], count: int, tmp_path: Path) -> None:
    work, kept, logged, snapshots = watch(tmp_path, **limits)
    with snapshots:
        for number in range(4):
            (work / "solution.py").write_text(f"x = {number}\n")
            time.sleep(0.2)
    assert len(list(kept.iterdir())) == count
    assert [kind for kind, _ in logged] == ["snapshots_full"]


@pytest.mark.timeout(20)
def test_snapshots_of_a_hostile_workspace(tmp_path: Path) -> None:
    work, kept, logged, snapshots = watch(tmp_path)
    file = work / "solution.py"
    with snapshots:
        file.symlink_to("/etc/passwd")
        time.sleep(0.2)
        file.unlink()
        os.mkfifo(file)
        time.sleep(0.2)
        file.unlink()
        with file.open("wb") as sparse:
            sparse.truncate(10 << 30)
        time.sleep(0.2)
        file.unlink()
        file.mkdir()
    assert not list(kept.iterdir())
    assert not logged


def test_snapshots_that_cannot_be_written_are_noted(tmp_path: Path) -> None:
    work, kept, _, snapshots = watch(tmp_path)
    (work / "solution.py").write_text("x = 1\n")
    with snapshots:
        shutil.rmtree(kept)
        (work / "solution.py").write_text("x = 2\n")  # the first state may have been kept already
    assert snapshots.trouble == "the snapshots end early, as they cannot be written (No such file or directory)"
