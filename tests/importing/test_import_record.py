"""The record of an import: nothing is lost in an interrupt, and no report of a sandbox is believed unread."""

import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from arena.errors import UsageError
from arena.files import documents
from arena.importing import several
from arena.importing.records import Import, Imported, Measured, Probed

TASK = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {forward}


rows = 64
def get_inputs():
    return [torch.rand(rows, 96)]

def get_init_inputs():
    return []
"""
FORWARDS = ("x * 2", "x.argmax(1)", "torch.softmax(x, 1)", "x.cumsum(1)")


def tasks(folder: Path, forwards=FORWARDS) -> Path:
    level = folder / "level1"
    level.mkdir(exist_ok=True)
    for number, forward in enumerate(forwards, start=9):  # 9, 10: by number, not by letters
        (level / f"{number}_Own.py").write_text(TASK.format(forward=forward))
    return level


def recorded(out: Path) -> list[tuple[str, str | None]]:
    return [(task.source, task.problem) for task in documents.read_yaml(out / "import.yaml", Import).tasks]


@pytest.mark.slow
def test_an_interrupted_import_goes_on_by_the_same_command(tmp_path, sandbox, shared):
    level, out = tasks(tmp_path), tmp_path / "kbp"
    words = ("import", "kernelbench", str(level), "--out", str(out), "--at-once", "1")
    process = shared.start(*words)
    until = time.monotonic() + 60
    while not (out / "kb_l1_009").is_dir() and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert recorded(out)[0] == ("level1/9_Own.py", "kb_l1_009")
    before = (out / "kb_l1_009" / "problem.yaml").stat().st_mtime_ns
    again = shared(*words)
    assert again.code == 1, again.err  # one task is unfit
    assert "there already" in again.err
    every = [("level1/9_Own.py", "kb_l1_009"), ("level1/10_Own.py", None), ("level1/11_Own.py", "kb_l1_011")]
    assert recorded(out) == [*every, ("level1/12_Own.py", "kb_l1_012")]
    assert (out / "kb_l1_009" / "problem.yaml").stat().st_mtime_ns == before
    assert sorted(path.name for path in out.iterdir()) == ["import.yaml", "kb_l1_009", "kb_l1_011", "kb_l1_012"]


def head(source: str = "level1/9_Own.py", **given: object) -> Imported:
    return Imported.model_validate({"source": source, "sha256": "a" * 64, "arithmetic": "fp32", "arena_version": "1"} | given)


def empty(out: Path) -> several.Record:
    out.mkdir(exist_ok=True)
    none = Import(benchmark="kernelbench", arena_version="1", tasks=())
    return several.Record(out, none)


PATH, NAMES = Path("9_Own.py"), {Path("9_Own.py"): "kb_l1_009"}


def converted(path: Path, staged: Path) -> Imported:
    staged.mkdir()
    return head(problem="kb_l1_009")


def test_a_record_without_its_folder_is_converted_again(tmp_path):
    """A crash between the record and the rename, and a folder that its user removed."""
    list(several.convert_all([PATH], converted, empty(tmp_path), 1))
    assert empty(tmp_path).done({PATH: head()}, NAMES).keys() == {PATH}
    (tmp_path / "kb_l1_009").rmdir()
    assert empty(tmp_path).done({PATH: head()}, NAMES) == {}


@pytest.mark.parametrize("changed", [{"sha256": "b" * 64}, {"rules": True}, {"given": {"cpu": {"rows": 4}}}])
def test_a_folder_of_another_task_is_never_written_over(tmp_path, changed):
    list(several.convert_all([PATH], converted, empty(tmp_path), 1))
    with pytest.raises(UsageError, match="kb_l1_009 is there already"):
        empty(tmp_path).done({PATH: head(**changed)}, NAMES)


def test_a_folder_that_no_import_made_is_never_written_over(tmp_path):
    (tmp_path / "kb_l1_009").mkdir()
    with pytest.raises(UsageError, match="kb_l1_009 is there already"):
        empty(tmp_path).done({PATH: head()}, NAMES)


def test_an_unfit_task_is_tried_again_by_another_arena(tmp_path):
    """A new version may know what an old one did not; the same one need not try again."""
    list(several.convert_all([PATH], lambda path, staged: head(unfit="no gap"), empty(tmp_path), 1))
    assert empty(tmp_path).done({PATH: head()}, NAMES).keys() == {PATH}
    assert empty(tmp_path).done({PATH: head(arena_version="2")}, NAMES) == {}


def test_an_error_of_one_task_keeps_the_tasks_before_it(tmp_path):
    def one(path: Path, staged: Path) -> Imported:
        if path.name == "2":
            raise UsageError("--sizes: no such size")
        staged.mkdir()
        return head(f"level1/{path.name}", problem=f"p{path.name}")

    with pytest.raises(UsageError, match="no such size"):
        list(several.convert_all([Path("1"), Path("2"), Path("3")], one, empty(tmp_path), 1))
    assert recorded(tmp_path) == [("level1/1", "p1")]
    shutil.rmtree(tmp_path / several.STAGED)


PROBED: dict[str, Any] = {
    "sizes": {"rows": [0, 0]},
    "parameters": ["w"],
    "forward": 1,
    "scalars": [],
} | {
    profile: {
        "shape": {"rows": rows},
        "inputs": [["float32", [rows, 8]], ["float32", [8]]],
        "outputs": [["float32", [rows]]],
        "flops": 1,
        "bytes": 4 * (rows * 8 + 8 + rows),
    }
    for profile, rows in (("gpu", 64), ("cpu", 4), ("original", 128))
}
MEASURED: dict[str, Any] = {
    "tolerance": {"rel_fro": 1e-5, "row": 1e-5, "el": 1e-5},
    "gap": {"rel_fro": 100.0, "row": 100.0, "el": 100.0},
    "low": {},
    "classes": ["scaled"],
    "dropped": {},
    "weights_vary": True,
}


def test_honest_reports_are_taken():
    Probed.model_validate(PROBED)
    Measured.model_validate(MEASURED)


@pytest.mark.parametrize(
    "forged",
    [
        {"forward": 3},
        {"parameters": ["w", "w"]},
        {"parameters": ["w); import os; ("]},
        {"parameters": []},
        {"sizes": {"rows": [7, 0]}},
        {"sizes": {"rows": [0, 1]}},
        {"sizes": {"other": [0, 0]}},
        {"sizes": {"import os": [0, 0]}},
        {"sizes": {}},
        {"scalars": [[0, float("inf")]]},
        {"scalars": [[0, 1.0], [0, 2.0]]},
        {"scalars": [[99, 1.0]]},
        {"cpu": PROBED["cpu"] | {"bytes": 1}},
        {"cpu": PROBED["cpu"] | {"inputs": [["float32", [4, 8, 1]], ["float32", [8]]]}},
        {"cpu": PROBED["cpu"] | {"inputs": [["float64", [4, 8]], ["float32", [8]]], "bytes": 336}},
        {"cpu": PROBED["cpu"] | {"outputs": [["float32", [4]], ["float32", [4]]]}},
        {"extra": 1},
    ],
)
def test_a_probe_that_contradicts_itself_is_refused(forged):
    with pytest.raises(ValidationError):
        Probed.model_validate(PROBED | forged)


@pytest.mark.parametrize(
    "forged",
    [
        {"tolerance": {"rel_fro": float("inf"), "row": 1e-5, "el": 1e-5}},
        {"tolerance": {"rel_fro": 0.9, "row": 1e-5, "el": 1e-5}},
        {"tolerance": {"rel_fro": 0.0, "row": 1e-5, "el": 1e-5}},
        {"tolerance": {"rel_fro": 1e-5}},
        {"gap": {"rel_fro": 2.0, "row": 2.0, "el": 2.0}},
        {"gap": {"rel_fro": float("nan"), "row": 100.0, "el": 100.0}},
        {"classes": ["scaled", "scaled"]},
        {"classes": ["public"]},
    ],
)
def test_a_gate_that_is_none_is_refused(forged):
    with pytest.raises(ValidationError):
        Measured.model_validate(MEASURED | forged)
