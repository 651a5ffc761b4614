"""Copying an untrusted folder: deep trees, links, holes, names, modes, and files that cannot be copied."""

import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from arena.sandboxes import LostFiles, copy_tree

ALL = 1 << 40
KEPT = LostFiles()


@pytest.fixture
def folders(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    yield source, target
    subprocess.run(["rm", "-rf", str(source), str(target)], check=True)  # Python's own removal gives up on deep trees


def test_content_modes_and_times_are_kept(folders):
    source, target = folders
    (source / "a" / "b").mkdir(parents=True)
    (source / "a" / "b" / "file").write_bytes(b"x" * 100_000)
    (source / "program").write_text("#!/bin/sh\n")
    (source / "program").chmod(0o6755)
    os.utime(source / "program", ns=(1, 2_000_000_003))
    (source / "a").chmod(0o500)
    assert copy_tree.copy(source, target, cap_bytes=ALL) == KEPT
    assert (target / "a" / "b" / "file").read_bytes() == b"x" * 100_000
    found = (target / "program").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (0o755, 2_000_000_003)
    assert stat.S_IMODE((target / "a").stat().st_mode) == 0o500
    assert (target / "a").stat().st_mtime_ns == (source / "a").stat().st_mtime_ns


def test_no_link_is_followed(folders, tmp_path):
    source, target = folders
    (tmp_path / "secret").write_text("secret")
    (source / "file").symlink_to(tmp_path / "secret")
    (source / "folder").symlink_to(tmp_path)
    os.mkfifo(source / "pipe")
    assert copy_tree.copy(source, target, cap_bytes=ALL) == KEPT
    assert (target / "file").readlink() == tmp_path / "secret"
    assert (target / "folder").readlink() == tmp_path
    assert (target / "pipe").is_fifo()


@pytest.mark.slow
def test_a_tree_may_be_three_thousand_folders_deep(folders):
    source, target = folders
    program = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nopen('last', 'w').write('found')"
    subprocess.run(["python3", "-c", program], cwd=source, check=True)
    assert copy_tree.copy(source, target, cap_bytes=ALL) == KEPT
    look = "import os\nfor _ in range(3000): os.chdir('d')\nprint(open('last').read())"
    assert subprocess.run(["python3", "-c", look], cwd=target, check=True, capture_output=True).stdout == b"found\n"


def test_holes_stay_holes(folders):
    source, target = folders
    with (source / "sparse").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(512 << 20)
        file.write(b"here")
    with (source / "empty").open("wb") as file:
        file.truncate(1 << 30)
    assert copy_tree.copy(source, target, cap_bytes=MIB) == KEPT
    assert (target / "sparse").stat().st_size == (target / "empty").stat().st_size == 1 << 30
    assert (target / "sparse").stat().st_blocks * 512 <= MIB and (target / "empty").stat().st_blocks == 0
    with (target / "sparse").open("rb") as file:
        file.seek((512 << 20) - 4)
        assert file.read(12) == bytes(4) + b"here" + bytes(4)


MIB = 1 << 20


def test_large_files_are_left_out_first(folders):
    source, target = folders
    for name in ("a", "b", "c"):
        (source / name).write_bytes(bytes(range(256)) * 4096)
    (source / "solution.py").write_text("x = 1")
    (source / "0").mkdir()
    (source / "0" / "large").write_bytes(b"1" * MIB)
    lost = copy_tree.copy(source, target, cap_bytes=2 * MIB + 4096)
    assert lost == LostFiles(2, ("c (more than what may be kept)", "0/large (more than what may be kept)"))
    assert sorted(path.name for path in target.iterdir()) == ["0", "a", "b", "solution.py"]
    assert not list((target / "0").iterdir())


def test_small_files_have_a_reserve_that_ends_too(folders):
    source, target = folders
    for name in ("a", "b", "c", "d"):
        (source / name).write_bytes(b"1" * 4096)
    (source / "large").write_bytes(b"1" * 8192)
    lost = copy_tree.copy(source, target, cap_bytes=4096, small_bytes=4096, reserve_bytes=2 * 4096)
    assert lost == LostFiles(2, ("d (more than what may be kept)", "large (more than what may be kept)"))
    assert sorted(path.name for path in target.iterdir()) == ["a", "b", "c"]


def test_lost_files_are_counted_and_the_first_named_in_short(folders):
    source, target = folders
    program = (
        "import os, socket\n"
        "for _ in range(300):\n    os.mkdir('d' * 250); os.chdir('d' * 250)\n"
        "for number in range(300): socket.socket(socket.AF_UNIX).bind(f's{number:03}')"
    )
    subprocess.run(["python3", "-c", program], cwd=source, check=True)
    lost = copy_tree.copy(source, target, cap_bytes=ALL)
    assert lost.count == 300 and len(lost.first) == 100
    assert lost.first[0].startswith("d" * 190) and lost.first[0].endswith("/s000 (a socket or a device)")
    assert max(map(len, lost.first)) < 500


def test_each_name_of_a_hard_link_counts(folders):
    source, target = folders
    (source / "a").write_bytes(b"1" * MIB)
    for number in range(50):
        os.link(source / "a", source / f"b{number}")
    assert copy_tree.copy(source, target, cap_bytes=3 * MIB).count == 48
    assert sum(path.stat().st_size for path in target.iterdir()) == 3 * MIB


def test_strange_names_are_copied_and_sockets_are_lost(folders):
    source, target = folders
    names = [b"\n", b"\xff\xfe", b"\x1b[2J", b" ", b"-rf", b"x" * 255]
    for name in names:
        Path(os.fsdecode(bytes(source) + b"/" + name)).write_text("x")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(source / "socket"))
        assert copy_tree.copy(source, target, cap_bytes=ALL) == LostFiles(1, ("socket (a socket or a device)",))
    assert {os.fsencode(path.name) for path in target.iterdir()} == set(names)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_copy_belongs_to_its_new_owner(folders):
    source, target = folders
    (source / "a").mkdir()
    (source / "a" / "file").write_text("x")
    assert copy_tree.copy(source, target, owner=64999, cap_bytes=ALL) == KEPT
    assert {path.stat().st_uid for path in (target, target / "a", target / "a" / "file")} == {64999}


def test_descriptors_are_closed(folders):
    source, target = folders
    (source / "a").mkdir()
    (source / "a" / "file").write_text("x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    copy_tree.copy(source, target, cap_bytes=ALL)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
