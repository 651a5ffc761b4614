"""`import arena`: its names, how light it is, and what its functions return."""

import subprocess
import sys
from pathlib import Path

import pytest
from command import ROOT, needs_sandbox

import arena

NAMES = {
    *("score", "run", "load_problem", "load_annotations", "__version__"),
    *("Annotation", "Problem", "Score", "Passed", "Rejected", "JudgeFailed", "Submission"),
    *("ArenaError", "UsageError", "DataError", "SandboxError", "JudgeError"),
}


def test_exported_names_are_these():
    assert set(arena.__all__) == NAMES == {*dir(arena)}
    assert all(getattr(arena, name) is not None for name in NAMES)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'arena' has no attribute 'scor'"):
        arena.scor  # noqa: B018


def test_import_loads_no_other_module_of_arena():
    program = "import sys, arena; print([name for name in sys.modules if name.startswith('arena.')])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_package_is_typed():
    assert (ROOT / "arena" / "py.typed").is_file()


def test_load_problem_gives_the_public_facts():
    problem = arena.load_problem("paged_attention")
    assert problem.shapes["cpu"][0]["page"] == 16
    with pytest.raises(arena.UsageError, match="did you mean 'paged_attention'"):
        arena.load_problem("paged_atention")


def test_load_annotations_reads_a_folder(tmp_path: Path):
    assert arena.load_annotations(tmp_path) == []
    (tmp_path / "x.yaml").write_text("run_id: y\n")
    with pytest.raises(arena.DataError, match=r"x\.yaml"):
        arena.load_annotations(tmp_path)


def test_score_of_a_missing_file_is_a_usage_error(tmp_path: Path):
    with pytest.raises(arena.UsageError, match="no such file"):
        arena.score(tmp_path / "none.py", problem="paged_attention", hardware="cpu")


@needs_sandbox
@pytest.mark.parametrize("source", ["def solution(\n", b"def solution(", "# nothing\n\n"], ids=["text", "bytes", "no solution"])
def test_score_takes_source(source):
    score = arena.score(source, problem="paged_attention", hardware="cpu")
    assert isinstance(score, arena.Rejected)
    assert score.verdict == "crashed"


@needs_sandbox
def test_score_of_an_empty_source_is_missing():
    score = arena.score(b"", problem="paged_attention", hardware="cpu")
    assert (score.verdict, score.message) == ("missing", "solution.py is empty")


@needs_sandbox
def test_run_refuses_before_it_starts(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("ARENA_HOME", str(tmp_path))
    with pytest.raises(arena.UsageError, match="2 faults"):
        arena.run("orakel", problem="nothing", hardware="cpu")
    assert not list(tmp_path.glob("workspaces/*/manifest.json"))
