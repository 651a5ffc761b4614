"""`arena new-problem`: three blanks, filled here by x * sigmoid(x), and the folder passes its problem check."""

import json
from pathlib import Path

import pytest
from command import Arena, needs_sandbox

from arena import catalog
from arena.authoring import contract, scaffold
from arena.errors import DataError, UsageError
from arena.files.blanks import blanks, refuse_blanks
from arena.plan import plan, problem_on
from arena.schema import Sweep
from arena.sweep import grid

FILLED = {
    "reference.py": "return x * torch.sigmoid(x)",
    "solutions/naive.py": "return torch.cat([part / (1 + torch.exp(-part.double())) for part in x.split(512)]).float()",
    "solutions/oracle.py": "y.copy_(x).sigmoid_().mul_(x)",
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.setenv("ARENA_PROBLEMS", str(folder))
    return folder


def fill(folder: Path, *files: str) -> None:
    for name in files:
        lines = (folder / name).read_text().splitlines(keepends=True)
        [at] = [number for number, line in enumerate(lines) if "BLANK" in line]
        lines[at] = f"    {FILLED[name]}\n"
        (folder / name).write_text("".join(lines))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_three_blanks_are_left_and_named(own: Path) -> None:
    folder = scaffold.create("my_silu")
    left = list(blanks(folder))
    assert [text.partition(": blank ")[2][:6] for text in left] == ["1 of 3", "2 of 3", "3 of 3"]
    for blank, name in zip(left, FILLED, strict=True):
        path, line = blank.partition(": blank")[0].rsplit(":", 1)
        assert path == str(folder / name)
        assert "BLANK" in (folder / name).read_text().splitlines()[int(line) - 1]
    fill(folder, "reference.py", "solutions/naive.py")
    with pytest.raises(DataError, match=r"a blank is left:\n.*oracle\.py:\d+: blank 3 of 3: write the answer"):
        refuse_blanks(folder)
    fill(folder, "solutions/oracle.py")
    refuse_blanks(folder)


def test_the_filled_folder_keeps_the_contract(own: Path) -> None:
    fill(scaffold.create("my_silu"), "reference.py")
    problem = catalog.problem("my_silu")
    found = [*contract.check(problem), *contract.check_degenerate(problem, "cpu")]
    assert [each for each in found if not each.ok] == []
    assert {each.kind for each in found} == {"contract", "degenerate"}


def test_shipped_problems_have_no_blanks() -> None:
    assert [text for name in catalog.problem_names() for text in blanks(catalog.problem_folder(name))] == []


def test_nothing_is_scored_while_the_reference_is_a_blank(own: Path) -> None:
    folder, cpu = scaffold.create("my_silu"), catalog.hardware("cpu")
    sweep = Sweep.model_validate({"name": "s", "cells": [{"models": ["naive"], "problems": "all"}], "hardware": "cpu"})
    words = r"3 of the problem's blanks are not filled:\n.*reference\.py:\d+: blank 1 of 3.*\n.*blank 2 of 3.*\n.*blank 3 of 3"
    for asked in (
        lambda: problem_on("my_silu", "cpu", 0),
        lambda: plan("my_silu", "naive", hardware="cpu"),
        lambda: grid.cells(sweep, cpu, 1),
    ):
        with pytest.raises(DataError, match=words):
            asked()
    fill(folder, "reference.py")
    assert problem_on("my_silu", "cpu", 0)[1] == cpu, "a blank solution hinders no other"
    (folder / "hidden.py").write_text('raise NotImplementedError("BLANK 9 of 9: x")\n')
    with pytest.raises(DataError, match="hidden"):
        problem_on("my_silu", "cpu", 0)


def test_nothing_is_written_over(own: Path) -> None:
    folder = scaffold.create("my_silu")
    (folder / "reference.py").write_text("mine")
    before = files(own)
    with pytest.raises(UsageError, match="there is a problem of that name already"):
        scaffold.create("my_silu")
    (own / "notes").mkdir()
    with pytest.raises(UsageError, match="is there already"):
        scaffold.create("notes")
    (own / "away").symlink_to(own / "elsewhere")
    with pytest.raises(UsageError, match="is there already"):
        scaffold.create("away")
    assert files(own) == before


@pytest.mark.parametrize("name", ["paged_attention", "../outside", "Mine", "", ".hidden", "a b", "a/b"])
def test_a_name_that_no_problem_may_have(own: Path, name: str) -> None:
    with pytest.raises(UsageError):
        scaffold.create(name)
    assert list(own.iterdir()) == []
    assert [path.name for path in own.parent.iterdir()] == ["mine"]


def test_without_a_folder_it_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARENA_PROBLEMS", raising=False)
    with pytest.raises(UsageError, match="--problems DIR new-problem my_silu"):
        scaffold.create("my_silu")


@pytest.mark.slow
def test_the_command_writes_and_the_check_names_blanks(shared: Arena, tmp_path: Path) -> None:
    done = shared("--problems", str(tmp_path), "new-problem", "my_silu")
    assert (done.code, done.out) == (0, "")
    assert done.err.count("blank ") == 3
    for command in ("check", "baseline"):
        error = shared.refused("--problems", str(tmp_path), command, "my_silu", "--hardware", "cpu")
        assert error.startswith("3 of the problem's blanks are not filled:\n")


@needs_sandbox
@pytest.mark.slow
def test_the_filled_folder_passes_its_check(shared: Arena, tmp_path: Path) -> None:
    assert shared("--problems", str(tmp_path), "new-problem", "my_silu").code == 0
    fill(tmp_path / "my_silu", *FILLED)
    facts = tmp_path / "my_silu" / "problem.yaml"
    facts.write_text(facts.read_text().replace("    - {rows: 48, n: 10007}\n", ""))  # one shape: a minute less
    done = shared("--problems", str(tmp_path), "check", "my_silu", "--hardware", "cpu", "--json", limit_s=400)
    [report] = json.loads(done.out)
    by_load = ("order", "repeat")  # they compare times, which the load of this machine decides
    assert [each for each in report["findings"] if not each["ok"] and each["kind"] not in by_load] == []
    assert {each["kind"] for each in report["findings"]} >= {"contract", "degenerate", "solution", *by_load}
