"""Collection: what is taken, what is refused and in which words, and that no race leaks a file from outside."""

import hashlib
import os
import re
import socket
import threading
import time
from pathlib import Path

import pytest

from arena.submission import NoSubmission, collect, read_regular

CANARY = "CANARY = 1\n"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes and foreign files")


def put(folder: Path, data: bytes | str) -> Path:
    file = folder / "solution.py"
    file.write_bytes(data.encode() if isinstance(data, str) else data)
    return file


def sparse(folder: Path) -> None:
    with (folder / "solution.py").open("wb") as file:
        file.truncate(10 << 30)


def bind_socket(folder: Path) -> None:
    before = Path.cwd()
    os.chdir(folder)  # a socket's path must be short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("solution.py")
    finally:
        os.chdir(before)


def hard_link(folder: Path) -> None:
    outside = folder.parent / "outside.py"
    outside.write_text(CANARY)
    os.link(outside, folder / "solution.py")


REFUSED = {
    "missing": (lambda _: None, "there is no solution.py"),
    "other case": (lambda f: (f / "Solution.py").write_text("x"), "there is no solution.py"),
    "trailing space": (lambda f: (f / "solution.py ").write_text("x"), "there is no solution.py"),
    "newline name": (lambda f: (f / "solution.py\n").write_text("x"), "there is no solution.py"),
    "absolute link": (
        lambda f: (f / "solution.py").symlink_to("/etc/passwd"),
        "is a symbolic link; only a regular file is taken",
    ),
    "relative link": (lambda f: (f / "solution.py").symlink_to("../outside.py"), "is a symbolic link"),
    "link to memory": (lambda f: (f / "solution.py").symlink_to("/proc/self/mem"), "is a symbolic link"),
    "fifo": (lambda f: os.mkfifo(f / "solution.py"), "is a FIFO"),
    "socket": (bind_socket, "is a socket"),
    "directory": (lambda f: (f / "solution.py").mkdir(), "is a directory"),
    "10 GB sparse": (sparse, "is too large: 10737418240 bytes (at most 1048576)"),
    "one byte over": (lambda f: put(f, b"#" * ((1 << 20) + 1)), "is too large"),
    "hard link": (hard_link, "has 2 hard links"),
    "latin-1": (lambda f: put(f, b"x='\xe9'"), "not UTF-8 text: byte 3"),
    "utf-16": (lambda f: put(f, "x=1".encode("utf-16")), "not UTF-8"),
    "nul": (lambda f: put(f, b"x = 1\ny = 2\0"), "solution.py:2 holds U+0000 (a control character)"),
    "escape codes": (lambda f: put(f, b"# \x1b[2J\n"), "U+001B"),
    "right-to-left": (lambda f: put(f, "x = 1\ny='\u202e'"), "solution.py:2 holds U+202E (RIGHT-TO-LEFT OVERRIDE)"),
    "zero width": (lambda f: put(f, "x\u200by = 1"), "U+200B"),
    "second bom": (lambda f: put(f, "\ufeff\ufeffx = 1"), "U+FEFF"),
    "line separator": (lambda f: put(f, "# a\u2028x = 1"), "U+2028"),
    "blank letter": (lambda f: put(f, "\u3164 = 1"), "U+3164"),
    "tag characters": (lambda f: put(f, "# \U000e0041"), "U+E0041"),
    "empty": (lambda f: put(f, b""), "solution.py is empty"),
    "only a bom": (lambda f: put(f, b"\xef\xbb\xbf"), "is empty"),
    "only spaces": (lambda f: put(f, " \n\t\n"), "is empty"),
    "utf-7": (lambda f: put(f, "# coding: utf-7\n# +AAo-x = 1\n"), "declares the encoding utf-7"),
    "latin-1 by name": (
        lambda f: put(f, "#!/usr/bin/python\r# vim: set fileencoding=latin-1 :\rx = 1\r"),
        "declares the encoding iso-8859-1",
    ),
    "unknown encoding": (lambda f: put(f, "# coding: klingon\n"), "klingon"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.timeout(10)
def test_unacceptable_files_are_rejected(case: str, tmp_path: Path) -> None:
    make, words = REFUSED[case]
    folder = tmp_path / "work"
    folder.mkdir()
    make(folder)
    with pytest.raises(NoSubmission, match=re.escape(words)) as refusal:
        collect(folder)
    assert "\n" not in refusal.value.reason


@needs_root
@pytest.mark.parametrize("kind", [0o020000, 0o060000], ids=["character", "block"])
def test_devices_are_not_opened(kind: int, tmp_path: Path) -> None:
    os.mknod(tmp_path / "solution.py", kind | 0o666, os.makedev(1, 5))
    with pytest.raises(NoSubmission, match="is a device"):
        collect(tmp_path)


def test_unreadable_files_are_rejected(tmp_path: Path) -> None:
    put(tmp_path, "x = 1\n").chmod(0)
    if os.geteuid() == 0:  # root reads all
        assert collect(tmp_path).source == b"x = 1\n"
    else:
        with pytest.raises(NoSubmission, match=r"solution\.py cannot be read: Permission denied"):
            collect(tmp_path)


@pytest.mark.parametrize("text", ["x = 'é'\n", "# coding: utf-8\nx = 1", "x = 1\r\n\fy = '⚠️ 漢字'\t\n", "#" * (1 << 20)])
def test_valid_source_is_taken_unchanged(text: str, tmp_path: Path) -> None:
    put(tmp_path, text)
    taken = collect(tmp_path)
    assert taken.source == text.encode()
    assert taken.sha256 == hashlib.sha256(text.encode()).hexdigest()
    assert taken.lines == len(text.removesuffix("\n").split("\n"))


def test_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    put(tmp_path, b"\xef\xbb\xbfx = 1\n")
    assert collect(tmp_path).source == b"x = 1\n"


@pytest.mark.parametrize("name", ["", ".", "..", "../outside.py", "/etc/passwd", "a/../../outside.py", "a\0b"])
def test_paths_outside_the_folder_are_rejected(name: str, tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text(CANARY)
    (tmp_path / "work").mkdir()
    with pytest.raises(NoSubmission):
        collect(tmp_path / "work", name)


def test_links_in_a_path_are_not_followed(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    (work / "real").mkdir(parents=True)
    outside.mkdir()
    (work / "real" / "note").write_text("inside")
    (outside / "note").write_text("outside")
    (work / "link").symlink_to(outside)
    (tmp_path / "alias").symlink_to(work)
    assert read_regular(work, "real/note", 100) == b"inside"
    for folder, path in ((work, "link/note"), (tmp_path / "alias", "real/note")):
        with pytest.raises(NoSubmission, match="leads through something that is not a folder"):
            read_regular(folder, path, 100)


def test_growing_file_is_rejected(tmp_path: Path) -> None:
    """Whatever is accepted while a writer appends is a whole number of its records, and never past the cap."""
    stop = threading.Event()

    def grow() -> None:
        while not stop.is_set():
            with put(tmp_path, b"#0\n").open("ab", buffering=0) as file:
                for _ in range(200):
                    file.write(b"#" * 4095 + b"\n")

    writer = threading.Thread(target=grow)
    writer.start()
    reasons: set[str] = set()
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and not {"changed", "too large"} <= reasons:
            try:
                assert len(collect(tmp_path, cap_bytes=400_000).source) <= 400_000
            except NoSubmission as refusal:
                reasons |= {word for word in ("changed", "too large") if word in refusal.reason}
    finally:
        stop.set()
        writer.join()
    assert reasons == {"changed", "too large"}


@pytest.mark.slow
def test_swap_race_leaks_nothing(tmp_path: Path) -> None:
    """File and symbolic link swapped as fast as they go for 2 s: a reader that looks first and opens then leaks here."""
    outside, work = tmp_path / "outside.py", tmp_path / "work"
    outside.write_text(CANARY)
    work.mkdir()
    file, stop = work / "solution.py", threading.Event()

    def swap() -> None:
        while not stop.is_set():
            file.unlink(missing_ok=True)
            file.symlink_to(outside)
            file.unlink()
            file.write_text("mine = 1\n")

    attacker = threading.Thread(target=swap)
    attacker.start()
    taken: list[bytes] = []
    refused = 0
    try:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            try:
                taken.append(collect(work).source)
            except NoSubmission:
                refused += 1
    finally:
        stop.set()
        attacker.join()
    assert set(taken) == {b"mine = 1\n"}
    assert refused > 0
