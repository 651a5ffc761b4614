"""Runs and orders on their way between machines: nothing leaves its folder, nothing is done twice, nothing is lost."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from command import copy
from sweeping import written

from arena.errors import DataError
from arena.sweep import transfer


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


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/../../out"])
def test_a_run_from_elsewhere_writes_nowhere_else(tmp_path: Path, name: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
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
print(repr(machine.open(sweep, cells, "mark", arena.__version__, 4.0).refused))
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


def test_a_repeated_exchange_does_nothing_twice(tmp_path: Path) -> None:
    arena = copy(tmp_path)
    done = arena.python(EXCHANGES, written(arena))
    refused, fits, once, again = done.out.splitlines()
    assert "is installed here, and 0.0 at the head" in refused and fits == "''", done.err
    assert (once, again) == ("[1] [1, 2] 2", "True []")
    assert done.code == 1, "a machine to which the head says nothing more ends itself"
