"""Limits on a workspace: in memory as root, else by `du`. What both backends do with it is in test_conformance.py."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from arena.errors import SandboxError
from arena.sandboxes import MIB, Limits, LostFiles, SandboxSpec, host, workspace_mount

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a workspace a file system of its own")
BOUNDED = Limits(workspace_bytes=8 * MIB, workspace_files=50)


@as_root
def test_a_workspace_that_does_not_fit_is_an_error(bwrap_backend, tmp_path):
    (tmp_path / "large").write_bytes(b"x" * 9 * MIB)
    with pytest.raises(SandboxError, match="do not fit into a workspace of 8 MiB, 50 files: large"):
        bwrap_backend.run(SandboxSpec("agent", ("true",), workspace=tmp_path, limits=BOUNDED)).__enter__()
    assert (tmp_path / "large").stat().st_size == 9 * MIB


@as_root
def test_a_disk_without_room_for_the_end_is_an_error(bwrap_backend, tmp_path):
    needed = Limits(workspace_bytes=1 << 60)
    text = rf"^\d+ MiB are free on the disk of {re.escape(str(tmp_path))}, and {(1 << 40) + 1024} "
    with (
        pytest.raises(SandboxError, match=text),
        bwrap_backend.run(SandboxSpec("agent", ("touch", "started"), workspace=tmp_path, limits=needed)),
    ):
        raise AssertionError("it started")
    assert not list(tmp_path.iterdir())


GIT = """
git init -q . && git config user.email a@b && git config user.name a && touch tracked && git add tracked && git commit -qm x
git config core.fsmonitor ./planted && printf '#!/bin/sh\\necho ran >>%s\\n' "$1" >planted && chmod +x planted
"""


@as_root
@pytest.mark.skipif(host.program("git") is None, reason="needs git")
@pytest.mark.parametrize("limits", [Limits(), Limits(workspace_bytes=64 * MIB)], ids=["folder", "in memory"])
def test_a_repository_of_the_agent_runs_no_program_of_its_own(bwrap_backend, tmp_path, limits):
    """A person who types `git status` in a kept workspace would run what .git/config names: as root, were the folder root's."""
    work, proof = tmp_path / "work", tmp_path / "proof"
    work.mkdir()
    proof.touch()
    proof.chmod(0o666)
    with bwrap_backend.run(SandboxSpec("agent", ("sh", "-ec", GIT, "sh", str(proof)), workspace=work, limits=limits)) as running:
        assert running.wait(30) == 0, running.stderr.read()
    done = subprocess.run(["git", "status"], cwd=work, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
    assert proof.read_text() == "" and "dubious ownership" in done.stderr
    assert {path.lstat().st_uid for path in (work, *work.rglob("*"))}.isdisjoint({0})
    # The twin: the same repository, had it come home as root's own.
    subprocess.run(["chown", "-R", "0:0", work], check=True)
    subprocess.run(["git", "status"], cwd=work, env={"PATH": os.environ["PATH"]}, capture_output=True)
    assert proof.read_text() != ""


@pytest.fixture
def disk():
    """A folder on a disk of 64 MiB, less than what is left free there when a workspace is copied back."""
    mount = workspace_mount.detached_tmpfs(Limits(workspace_bytes=64 * MIB))
    folder = Path(f"/proc/{os.getpid()}/fd/{mount}/home")
    folder.mkdir()
    yield folder
    os.close(mount)


@as_root
def test_a_full_disk_still_takes_the_small_files(disk):
    fd = workspace_mount.detached_tmpfs(BOUNDED)
    mount = workspace_mount.WorkspaceMount(disk, fd, BOUNDED, os.geteuid())
    mount.path.mkdir()
    (mount.path / "solution.py").write_text("x = 1\n")
    (mount.path / "large").write_bytes(bytes(range(256)) * (3 * MIB // 256))
    assert mount.copy_back() == LostFiles(1, ("large (more than what may be kept)",))
    os.close(fd)
    assert (disk / "solution.py").read_text() == "x = 1\n" and not (disk / "large").exists()


@as_root
def test_a_workspace_in_memory_is_not_mounted_on_the_host(bwrap_backend, tmp_path):
    ours = (f"-{os.getpid()}-", str(tmp_path))  # tests side by side mount workspaces that sandboxes share
    script = "echo x > x; echo ready; sleep 60"
    with bwrap_backend.ready("sh", "-c", script, kind="agent", workspace=tmp_path, limits=BOUNDED):
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        assert not [line for line in mounts if any(name in line for name in ours)]
        assert not list(tmp_path.iterdir())


WATCHED = """
import sys
from pathlib import Path
from arena.sandboxes import SandboxSpec, Limits, bwrap
work = Path(sys.argv[1])
limits = Limits(workspace_bytes=8 << 20, workspace_files=50)
for program in (
    "import os, time\\nos.mkdir('d'); open('d/x', 'wb').write(bytes(9 << 20)); os.chmod('d', 0o300); time.sleep(60)",
    "import os, time\\nfile = open('x', 'wb'); os.unlink('x'); os.posix_fallocate(file.fileno(), 0, 1100 << 20); time.sleep(60)",
):
    with bwrap.run(SandboxSpec("agent", ("python", "-c", program), workspace=work, limits=limits)) as running:
        code = running.wait(20)
    print(code, *running.exceeded)
    for path in work.iterdir():
        path.chmod(0o700)
        (path / "x").unlink()
        path.rmdir()
"""


@pytest.mark.slow
def test_a_watched_workspace_cannot_hide_large_files(bwrap_backend, as_a_plain_user):
    hidden, nameless = as_a_plain_user(WATCHED).stdout.splitlines()
    assert re.fullmatch(r"137 its workspace could not be measured: du: cannot read directory '.*/d': Permission denied", hidden)
    assert re.fullmatch(r"137 the disk of its workspace lost 11\d{8} bytes, and the workspace may have 8388608", nameless)


@pytest.mark.slow
def test_a_workspace_in_motion_is_measured(tmp_path):
    for number in range(200):
        (tmp_path / f"{number}" / "a").mkdir(parents=True)
    program = (
        "import os, time\nend = time.monotonic() + 2\nprint('ready', flush=True)\nwhile time.monotonic() < end:\n"
        "    for n in range(200): os.rename(f'{n}', f'x{n}'); os.rename(f'x{n}', f'{n}')"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE) as mover:
        assert mover.stdout is not None
        mover.stdout.readline()
        while mover.poll() is None:
            limits = Limits(workspace_bytes=1 << 40, workspace_files=1 << 20)
            assert workspace_mount.check_workspace(tmp_path, limits) == ""


@pytest.mark.parametrize(
    ("times", "finding"), [(1, ""), (3, "its workspace could not be measured: its folders are moved all the time")]
)
def test_an_aborted_measurement_is_made_again(times, finding, tmp_path, monkeypatch):
    """GNU du 9.1 fails an assertion of its own, once in a while, where folders are moved under it."""
    aborting, tries = tmp_path / "du", tmp_path / "tries"
    aborts = "{ echo 'du: src/du.c:638: process_file: Assertion failed.' >&2; kill -ABRT $$; }"
    aborting.write_text(
        f'#!/bin/sh\necho >> {tries}\n[ $(wc -l < {tries}) -gt {times} ] || {aborts}\nexec {shutil.which("du")} "$@"\n'
    )
    aborting.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert workspace_mount.check_workspace(tmp_path, Limits(workspace_bytes=1 << 40)) == finding
