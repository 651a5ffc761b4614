"""How much of this machine others use, and which processes they are."""

import json
import os
import subprocess
import sys

import pytest
from busy import spinning

from arena.system import load
from arena.system.load import Load, User, between

LOOK = "import json; from arena.system import load; print(json.dumps([load.look(1.0).busy, load.look(1.0)]))"


@pytest.mark.slow
def test_spinning_processes_make_the_machine_busy() -> None:
    with spinning(2 * len(os.sched_getaffinity(0))) as pids:
        # In a process of its own, of which those that spin are no descendants.
        busy, (used, processors, by) = json.loads(subprocess.run([sys.executable, "-c", LOOK], stdout=subprocess.PIPE).stdout)
    assert busy
    assert 0 < used <= processors + 0.1
    assert set(pids) & {pid for _, pid, _ in by}


def test_own_descendants_do_not_count() -> None:
    with spinning(1) as pids:
        found = load.look(0.5)
    assert set(pids).isdisjoint(user.pid for user in found.by)


def sample(at_s: float, total_s: float, **processes: tuple[int, int, float]) -> load._Sample:
    """A sample; each process as (pid, parent, seconds)."""
    ticks = load.TICKS_PER_S
    found = {pid: load._Process(name, parent, round(used_s * ticks)) for name, (pid, parent, used_s) in processes.items()}
    return load._Sample(at_s, round(total_s * ticks), found)


@pytest.mark.parametrize(
    ("total_s", "used_s", "says"),
    [
        (1.9, 0.9, "other processes use 1.4 of 4 processors: cc (pid 9) 0.9, 0.5 by processes that cannot be seen from here"),
        (1.0, 0.5, "other processes use 0.5 of 4 processors: cc (pid 9) 0.5"),
        (0.0, 0.5, "other processes use 0.5 of 4 processors: cc (pid 9) 0.5"),  # a kernel that hides its own counters
        (0.5, 0.0, "other processes use 0.0 of 4 processors"),
    ],
    ids=["unseen", "seen", "hidden counters", "idle"],
)
def test_load_between_two_samples(total_s: float, used_s: float, says: str) -> None:
    before = sample(0.0, 0.0, me=(5, 1, 0.0), mine=(6, 5, 0.0), cc=(9, 1, 0.0))
    after = sample(1.0, total_s, me=(5, 1, 0.1), mine=(6, 5, 0.4), cc=(9, 1, used_s))
    found = between(before, after, 5, 4)
    assert found.words() == says
    assert found.busy == (used_s == 0.9)


def test_a_quarter_of_the_processors_is_not_yet_busy() -> None:
    assert not Load(0.5, 2).busy
    assert Load(0.6, 2).busy
    assert "cc" not in Load(1.0, 2, (User("cc", 9, 1.0),)).share()
