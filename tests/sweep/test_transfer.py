"""Runs and orders on their way between machines: nothing leaves its folder, nothing is done twice, nothing is lost."""

import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from command import copy
from records import trial
from sweeping import planned, written

import arena
from arena import judge, paths
from arena.errors import DataError
from arena.files import documents
from arena.schema import Sweep
from arena.sweep import transfer
from arena.sweep.broker import Places
from arena.sweep.node import Ended, Node, Said
from arena.sweep.remote import Order, RemoteMachine


def a_run(root: Path) -> Path:
    run = root / "20261124T000000Z_h_m_p_ab12"
    (run / "work" / "deep").mkdir(parents=True)
    for name, text in {
        "manifest.json": "{}",
        "events.jsonl": '{"at": "t", "kind": "committed"}\n{"at": "t", "kind": "annotated"}\n',
        "solution.py": "x = 1\n",
        "session.json": "{}",
        "result.yaml": "a: 1\n",
        "lock": "",
        "work/deep/notes": "n",
    }.items():
        (run / name).write_text(text)
    return run


def test_a_run_arrives_whole_and_without_its_annotation(tmp_path: Path) -> None:
    run, root = a_run(tmp_path / "there"), tmp_path / "here"
    transfer.unpack(transfer.pack(run), run.name, root)
    got = root / run.name
    assert (got / "work" / "deep" / "notes").read_text() == "n" and (got / "lock").exists()
    assert (got / "events.jsonl").read_text() == '{"at": "t", "kind": "committed"}\n', "the head publishes it, and says so"
    (run / "result.yaml").write_text("a: 2\n")
    (got / "work" / "deep" / "notes").write_text("mine")
    transfer.unpack(transfer.pack(run, work=False), run.name, root)
    assert (got / "result.yaml").read_text() == "a: 2\n" and (got / "work" / "deep" / "notes").read_text() == "mine"
    assert sorted(path.name for path in root.iterdir()) == [run.name]


def test_an_agents_links_and_pipes_stay_behind(tmp_path: Path) -> None:
    """The attack: a link in the workspace that makes the head read a file of the machine, or wait at a pipe for ever."""
    run, root = a_run(tmp_path / "there"), tmp_path / "here"
    (run / "work" / "secret").symlink_to("/etc/passwd")
    (run / "work" / "folder").symlink_to("/etc")
    os.mkfifo(run / "work" / "pipe")
    transfer.unpack(transfer.pack(run), run.name, root)
    assert sorted(path.name for path in (root / run.name / "work").iterdir()) == ["deep"]


def deep_file(work: Path) -> None:
    """A file whose path is too long for the system, in a folder whose path is not."""
    below = os.open(work, os.O_RDONLY)
    for _ in range((4090 - len(str(work))) // 201):
        os.mkdir("d" * 200, dir_fd=below)
        above, below = below, os.open("d" * 200, os.O_RDONLY, dir_fd=below)
        os.close(above)
    os.close(os.open("f" * 220, os.O_CREAT | os.O_WRONLY, dir_fd=below))
    os.close(below)


def test_an_agents_odd_files_stop_nothing(tmp_path: Path) -> None:
    """The attack: a file that cannot be read makes its run vanish, and so the agent draws another session."""
    run, root = a_run(tmp_path / "there"), tmp_path / "here"
    deep_file(run / "work")
    (run / "work" / "closed").write_text("c")
    (run / "work" / "closed").chmod(0)
    (run / "work" / os.fsdecode(b"\xff")).write_text("f")
    transfer.unpack(transfer.pack(run), run.name, root)
    assert (root / run.name / "session.json").exists()
    assert (root / run.name / "work" / os.fsdecode(b"\xff")).read_text() == "f"
    transfer.pack(run, work=False)


def test_a_workspace_travels_up_to_a_number_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack: many small files, for which a machine would say nothing for so long that it is given up."""
    monkeypatch.setattr(transfer, "WORK_FILES", 5)  # of which work/ is one
    monkeypatch.setattr(transfer, "WORK_BYTES", 100)
    run, root = a_run(tmp_path / "there"), tmp_path / "here"
    (run / "work" / "0").write_text("0" * 101)
    for name in "1234":
        (run / "work" / name).write_text(name)
    transfer.unpack(transfer.pack(run), run.name, root)
    got = root / run.name
    assert (got / "session.json").exists()
    assert sorted(path.name for path in got.glob("work/**/*")) == ["1", "2", "3"]


def test_a_path_too_long_for_the_head_is_left_out(tmp_path: Path) -> None:
    """The attack: a path that the machine can write and the head, whose folder's name is longer, cannot."""
    run, root = a_run(tmp_path / "a"), tmp_path.joinpath(*["h" * 200] * 12)
    far = run.joinpath("work", *["d" * 200] * 10)
    far.mkdir(parents=True)
    (far / "file").write_text("f")
    transfer.unpack(transfer.pack(run), run.name, root)
    assert (root / run.name / "session.json").exists() and (root / run.name / "work" / "deep" / "notes").exists()


def test_what_is_there_already_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file that is written costs two waits for the disk."""
    run, root = a_run(tmp_path / "there"), tmp_path / "here"
    safely: list[str] = []
    write = documents.write_bytes

    def noted(path: Path, data: bytes) -> None:
        safely.append(path.name)
        write(path, data)

    monkeypatch.setattr(documents, "write_bytes", noted)
    transfer.unpack(transfer.pack(run), run.name, root)
    assert {"manifest.json", "session.json", "result.yaml"} <= set(safely) and "notes" not in safely
    safely.clear()
    (run / "result.yaml").write_text("a: 2\n")
    transfer.unpack(transfer.pack(run), run.name, root)
    assert safely == ["result.yaml"]


def a_machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteMachine:
    """One that is open, with nothing at work."""
    monkeypatch.setenv("ARENA_HOME", str(home))
    machine = RemoteMachine()
    machine._node = Node(home, Places(1))
    machine._done = machine._answered = 0
    machine._answers, machine._scores = {}, set()
    return machine


def test_a_run_that_cannot_be_sent_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What else happened in the same moment is not lost with it."""
    machine = a_machine(tmp_path, monkeypatch)
    run = a_run(paths.workspaces())

    def pack(folder: Path, *, work: bool = True) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(transfer, "pack", pack)
    monkeypatch.setattr(machine._node, "poll", lambda _: [Said(1, {"run": run.name}), Ended(1, 0), Ended(2, 0)])
    happened = [answer.happened for _, answer in machine.exchange(0, 1, [], 0.0)]
    assert happened[1:] == [Ended(1, 0), Ended(2, 0)]
    assert isinstance(happened[0], Said) and "cannot be sent to the head" in happened[0].line["error"]


def test_a_score_comes_without_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = a_machine(tmp_path, monkeypatch)
    run = a_run(paths.workspaces())
    machine._scores.add(2)
    monkeypatch.setattr(machine._node, "poll", lambda _: [Said(number, {"run": run.name}) for number in (1, 2)])
    packed = [answer.run for _, answer in machine.exchange(0, 1, [], 0.0)]
    assert [transfer.member(each, "work/deep/notes") for each in packed] == [b"n", None]
    assert [transfer.member(each, "session.json") for each in packed] == [b"{}", b"{}"]


@pytest.mark.parametrize(
    ("verdict", "session", "again"), [("missing", "{}", False), ("judge_failed", "{}", True), ("missing", '{"a": 1}', True)]
)
def test_a_score_that_was_not_heard_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: str, session: str, again: bool
) -> None:
    """It was committed, and the answer was lost with the head: the same order again draws no other score."""
    machine = a_machine(tmp_path, monkeypatch)
    run = a_run(paths.workspaces())
    (run / "result.yaml").unlink()
    packed = transfer.pack(run, work=False)
    documents.write_yaml(run / "result.yaml", trial(verdict))
    (run / "session.json").write_text(session)
    started: list[int] = []
    monkeypatch.setattr(machine._node, "start", lambda number, line: started.append(number))
    answers = [answer for _, answer in machine.exchange(0, 1, [Order(1, True, {"judge": run.name, "gpu": 0}, packed)], 0.0)]
    assert started == [1] * again
    if not again:
        assert [answer.happened for answer in answers] == [Said(1, {"run": run.name}), Ended(1, 0)]
        assert transfer.member(answers[0].run, "result.yaml") == (run / "result.yaml").read_bytes()


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/../../out"])
def test_a_run_from_elsewhere_writes_nowhere_else(tmp_path: Path, name: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(DataError, match="is no file of a run folder"):
        transfer.unpack(packed.getvalue(), "r", tmp_path / "here")
    with pytest.raises(DataError, match="is no run's id"):
        transfer.unpack(transfer.pack(a_run(tmp_path)), "../r", tmp_path / "here")


EXCHANGES = """
import sys, time
from pathlib import Path
from arena.schema import Sweep
from arena.files import documents
from arena.sweep import grid
from arena.sweep.remote import Order, RemoteMachine
import arena
sweep = documents.read_yaml(Path(sys.argv[1]), Sweep)
cells = grid.cells(sweep, grid.hardware_of(sweep), 1)
machine = RemoteMachine()
print(repr(machine.open(sweep, cells, "mark", "0.0", 60).refused))
print(repr(machine.open(sweep, cells, "mark", arena.__version__, 10.0).refused))
order = Order(1, True, {"judge": "none", "gpu": 0})
starts = []
machine._node.start = lambda number, line, start=machine._node.start: (starts.append(number), start(number, line))
answers = []
while len(answers) < 2:
    answers = machine.exchange(0, 1, [order], 0.5)  # the head had no answer: it asks again, with the same order
print(starts, [number for number, _ in answers], answers[-1][1].happened.code)
print(machine.exchange(0, 2, [], 0.0) == answers, machine.exchange(2, 2, [], 0.0))
sys.stdout.flush()
time.sleep(60)  # the head says nothing more
"""


@pytest.mark.slow
def test_a_repeated_exchange_does_nothing_twice(tmp_path: Path) -> None:
    tree = copy(tmp_path)
    done = tree.python(EXCHANGES, written(tree))
    refused, fits, once, again = done.out.splitlines()
    assert "is installed here, and 0.0 at the head" in refused and fits == "''", done.err
    assert (once, again) == ("[1] [1, 2] 2", "True []")
    assert done.code == 1, "a machine to which the head says nothing more ends itself"


@pytest.mark.slow
def test_a_machine_holds_nothing_on_its_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at them in a process that ends: what it held there itself would refuse every score."""

    def here(*_: object, **__: object) -> None:
        raise AssertionError("this process opens a GPU")

    monkeypatch.setattr(judge, "preflight", here)
    monkeypatch.setattr(os, "nice", lambda _: 0)
    monkeypatch.setenv("ARENA_HOME", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    cell = planned()
    cell = replace(cell, session=cell.session.model_copy(update={"hardware": "h200"}))
    sweep = Sweep.model_validate({"name": "s", "cells": [{"models": ["m"], "problems": "all"}], "hardware": "h200"})
    refused = RemoteMachine().open(sweep, [cell], "mark", arena.__version__, 60.0).refused
    assert "GPU" in refused and "Traceback" not in refused
