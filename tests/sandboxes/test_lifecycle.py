"""What is done around every box: an agent's work is kept and limits are watched, whatever else goes wrong."""

import errno
import os
import threading

import pytest

from arena.sandboxes import MIB, Limits, SandboxSpec, bwrap, workspace_mount
from arena.sandboxes.lifecycle import until_empty
from arena.sandboxes.watchdog import Watch

REASON = bwrap.missing()


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes file systems")
def test_the_workspace_comes_home_when_the_limits_cannot_be_asked_for(tmp_path):
    limits = Limits(workspace_bytes=MIB)
    mount = workspace_mount.detached(limits)
    shelf = workspace_mount.Shelf(tmp_path, mount, limits)
    shelf.path.mkdir()

    def met():
        raise OSError(errno.ENODEV, "its group is gone")

    with (
        bwrap.run(SandboxSpec("agent", ("sleep", "60"))) as box,
        pytest.raises(OSError, match="its group is gone"),
        until_empty(box, [], met, shelf),
    ):
        (shelf.path / "solution.py").write_text("x = 1\n")
    os.close(mount)
    assert box.wait(0) == 137
    assert (tmp_path / "solution.py").read_text() == "x = 1\n"


def test_who_cannot_look_any_more_ends_the_box_and_says_so(tmp_path):
    ended = threading.Event()
    watch = Watch(ended.set, [lambda: str(workspace_mount.free(tmp_path / "gone"))])
    assert ended.wait(10)
    watch.stop()
    assert watch.found.startswith("what it uses could not be looked at any more ([Errno 2]")
