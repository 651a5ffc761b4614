"""What every backend does around a sandbox: an agent's work is kept whatever else goes wrong, and users are not shared."""

import errno
import os
import subprocess

import pytest

from arena.sandboxes import MIB, Limits, SandboxSpec, lifecycle, workspace_mount

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes file systems and gives sandboxes users of their own")


@as_root
def test_a_workspace_is_copied_back_after_another_error(bwrap_backend, tmp_path):
    limits = Limits(workspace_bytes=MIB)
    fd = workspace_mount.detached_tmpfs(limits)
    mount = workspace_mount.WorkspaceMount(tmp_path, fd, limits, os.geteuid())
    mount.path.mkdir()

    def exceeded():
        raise OSError(errno.ENODEV, "its group is gone")

    with (
        bwrap_backend.run(SandboxSpec("agent", ("sleep", "60"))) as running,
        pytest.raises(OSError, match="its group is gone"),
        lifecycle.lifetime(running, [], exceeded, mount),
    ):
        (mount.path / "solution.py").write_text("x = 1\n")
    os.close(fd)
    assert running.wait(0) == 137
    assert (tmp_path / "solution.py").read_text() == "x = 1\n"


@as_root
def test_a_user_with_a_dead_process_is_not_used():
    with lifecycle.throw_away_user() as uid:
        pass
    with subprocess.Popen(["true"], user=uid, stdout=subprocess.DEVNULL) as dead:
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # not reaped: it counts for its user
        with lifecycle.throw_away_user() as other:
            assert other != uid
