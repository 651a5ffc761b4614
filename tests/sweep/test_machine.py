"""What a machine may do to a sweep: sleep, set its clock, fill its disk."""

import errno
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sweeping import planned

from arena.schema import Sweep
from arena.sweep.broker import Places
from arena.sweep.grid import Trial
from arena.sweep.node import Node, OneMachine, Said
from arena.sweep.scheduler import Scheduler


def test_a_machine_that_slept_ends_the_session() -> None:
    program = (
        "from arena.sweep import child\nchild.LOOK_S = 0.01\nslept = iter([5.0, 5.0, 30.0, 64.9, 65.1])\n"
        "child.end_after_sleep(lambda: next(slept))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 71 and "the machine has slept" in done.stdout


def test_setting_the_clock_is_no_sleep() -> None:
    """Both clocks behind it go on alike, whatever the time of day is set to."""
    program = "from arena.sweep import child; import time; a = child.slept_s(); time.sleep(0.1); print(child.slept_s() - a)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert abs(float(done.stderr)) < 0.05, "a child's standard output is the sweep's"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_disk_starts_nothing_more(number: int, tmp_path: Path) -> None:
    said: list[str] = []
    sweep = Sweep.model_validate({"name": "s", "cells": [{"models": ["m"], "problems": "all"}]})
    work = Scheduler(
        sweep, [Trial(planned(), 1)], OneMachine(tmp_path, Places(1)), tmp_path, lambda text, _: said.append(text), {}
    )
    work._failed_to_keep(OSError(number, "no room"))
    assert "no room: nothing more is started. Make room, then the same command goes on" in said[0]
    work._start()
    assert said[1:] == [] and work.view().trials[0].doing is None


def test_a_process_that_dies_is_noticed_at_once(tmp_path: Path) -> None:
    node = Node(tmp_path, Places(1))
    node.start(1, {"nothing": "of sense"})
    node._processes[1].process.kill()
    began_s = time.monotonic()
    happened = node.poll(30)
    assert [isinstance(each, Said) for each in happened] == [False] and happened[0].number == 1
    assert time.monotonic() - began_s < 5
