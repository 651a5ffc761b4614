"""Temporary folders: gone with their block, whatever was made in them; those of a killed arena are swept, and no others."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import until

from arena.system import process, tempdirs

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import sys, time
from arena.system import tempdirs
with tempdirs.folder() as folder:
    (folder / "work").mkdir()
    print(folder, flush=True)
    time.sleep(60)
"""
DEEP = """
import os, sys
os.chdir(sys.argv[1])
for _ in range(6000):
    os.mkdir("d")
    os.chdir("d")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A $TMPDIR of this test's own; tempfile looks it up again."""
    before, tempfile.tempdir = tempfile.tempdir, None
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path
    tempfile.tempdir = before


def killed() -> Path:
    """The folder of an arena that was killed."""
    with subprocess.Popen([sys.executable, "-c", HOLD], cwd=ROOT, stdout=subprocess.PIPE, text=True) as arena:
        assert arena.stdout is not None
        left = Path(arena.stdout.readline().strip())
        arena.kill()
    assert (left / "work").is_dir()
    return left


@pytest.mark.slow
def test_a_folder_is_private_and_ends_with_its_block(place: Path) -> None:
    with tempdirs.folder() as one, tempdirs.folder() as two:
        assert one != two and {one.parent, two.parent} == {place}
        assert one.stat().st_mode & 0o777 == 0o700
        (one / "deep").mkdir()
        assert process.run([sys.executable, "-c", DEEP, str(one / "deep")], limit_s=30).returncode == 0
        (one / "locked" / "in").mkdir(parents=True)
        (one / "locked").chmod(0)
    until(lambda: list(place.iterdir()) == [], "the removal of the deep tree, which goes on aside on a busy machine")


def test_a_killed_arenas_folder_is_swept_at_the_next_start(place: Path) -> None:
    left = killed()
    with tempdirs.folder() as folder:
        until(lambda: list(place.iterdir()) == [folder] != [left], "the removal of the other")


@pytest.mark.slow
def test_a_start_does_not_wait_for_the_removal_of_a_deep_tree(place: Path) -> None:
    left = killed()
    done = process.run([sys.executable, "-c", DEEP.replace("6000", "40_000"), str(left / "work")], limit_s=120)
    assert done.returncode == 0
    for _ in range(2):  # the second does not start another removal of the same tree
        with tempdirs.folder():
            assert left.exists()
    until(lambda: not left.exists(), "the removal of the deep tree", limit_s=120)
    until(lambda: list(place.iterdir()) == [], "the removal of all folders")


def test_no_other_folder_is_swept(place: Path) -> None:
    left = killed()
    mark = left.name.removeprefix(tempdirs.PREFIX).rpartition("-")[0]
    dead = f"{tempdirs.PREFIX}{mark}"
    outside = place / "outside"
    outside.mkdir()
    (place / f"{dead}-link").symlink_to(outside)
    (place / f"{dead}-file").touch()
    (place / f"{tempdirs.PREFIX}{tempdirs.owner(os.getppid())}-running").mkdir()
    (place / f"{tempdirs.PREFIX}1-{mark.partition('-')[2]}-elsewhere").mkdir()
    (place / "arena-proof-somebodys").mkdir()
    kept = set(place.iterdir()) - {left}
    if os.geteuid() == 0:
        others = place / f"{dead}-others"
        others.mkdir()
        os.chown(others, 65534, 65534)
        kept.add(others)
    assert list(tempdirs.abandoned()) == [left]
    with tempdirs.folder() as folder:
        until(lambda: set(place.iterdir()) == kept | {folder}, "the removal of the killed one's")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_mount_in_a_folder_is_never_emptied(place: Path) -> None:
    """In a mount namespace of its own: a workspace that a killed arena had attached for an engine."""
    assert killed().exists()
    program = """
import subprocess, sys
from pathlib import Path
from arena.system import tempdirs
left, = tempdirs.abandoned()
subprocess.run(["mount", "-t", "tmpfs", "none", str(left / "work")], check=True)
(left / "work" / "solution.py").touch()
with tempdirs.folder():
    print((left / "work" / "solution.py").exists())
"""
    done = process.run(["env", "-C", str(ROOT), "unshare", "-m", sys.executable, "-c", program], limit_s=30)
    assert done.stdout == b"True\n", done.stderr


def test_an_owner_is_alive_as_long_as_its_process(place: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        name = tempdirs.owner(other.pid)
        assert tempdirs.alive(name) and tempdirs.alive(tempdirs.owner())
        assert not tempdirs.alive(f"{name}1"), "the same number, started at another time"
        assert name.split("-")[1] == str(other.pid)
    assert not tempdirs.alive(name)
    assert tempdirs.alive(f"1-{name.partition('-')[2]}"), "of another pid namespace: it may be"
