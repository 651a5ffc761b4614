"""Help, wrong usage, and files or programs that are missing."""

import json
import re
from pathlib import Path

import pytest
from command import RUN, Arena, needs_sandbox

COMMANDS = (
    "run",
    "score",
    "check",
    "clean",
    "compare",
    "completion",
    "export",
    "baseline",
    "sandbox",
    "list",
    "new-problem",
    "show",
    "open",
    "site",
    "annotate",
    "review",
    "curve",
    "leaderboard",
    "doctor",
    "install",
    "judge",
    "calibrate",
    "schema",
)


def test_help_lists_every_command(shared: Arena) -> None:
    overview = shared("--help")
    assert (overview.code, overview.err) == (0, "")
    assert [name for name in COMMANDS if f" {name} " not in overview.out] == []
    # One process for all: starting eleven takes longer than all else that they do.
    every = "import sys; from arena.cli import cli; [cli([name, '-h'], 'arena', standalone_mode=False) for name in sys.argv[1:]]"
    done = shared.python(every, *COMMANDS)
    assert (done.code, done.err) == (0, "")
    assert [name for name in COMMANDS if f"Usage: arena {name}" not in done.out] == []


A100 = ("--hardware", "a100-80gb-sxm")
NO_FP8 = "NVIDIA A100 SXM4 80 GB has no fp8 arithmetic, whose peak bounds fp8_gemm (it has fp64, "


@pytest.mark.slow
@pytest.mark.parametrize("words", [("run", "-p"), ("score", "x.py", "-p"), ("check",)], ids=str)
def test_problem_of_an_absent_arithmetic_is_refused(words: tuple[str, ...], shared: Arena) -> None:
    pytest.importorskip("torch")
    error = shared.refused(*words, "fp8_gemm", *A100)
    assert error.startswith(NO_FP8)
    assert "\n" not in error
    assert not shared.runs


@pytest.mark.slow
@needs_sandbox
def test_check_all_leaves_out_what_the_gpu_cannot_score(shared: Arena) -> None:
    pytest.importorskip("torch")
    done = shared("check", "--all", *A100)
    left_out, *rest = done.err.splitlines()
    assert left_out.startswith(f"left out: {NO_FP8}")
    # The others come next, and this machine has no such GPU.
    assert done.code == 2
    assert any("NVIDIA A100 SXM4 80 GB" in line for line in rest if line.startswith("arena: "))


@pytest.mark.slow
def test_every_fault_of_the_named_problems_is_reported(shared: Arena) -> None:
    pytest.importorskip("torch")
    lines = shared.refused("check", "fp8_gemm", "paged", *A100).splitlines()
    assert lines[0] == "2 faults:"
    assert lines[1].startswith(f"1. {NO_FP8}")
    assert lines[2].startswith("2. unknown problem 'paged'")


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("problems/paged_attention/problem.yaml", ("run", "-p", "paged_attention")),
        ("problems/paged_attention/problem.yaml", ("list", "problems")),
        ("harnesses/builtin.yaml", ("list", "models")),
        ("arena/hardware/cpu.yaml", ("list", "hardware")),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_broken_catalogue_file_names_each_place(file: str, words: tuple[str, ...], arena: Arena) -> None:
    arena.edit(file, lambda text: re.sub("schema_version: .\n", "schema_version: 3\nextra: 1\n", text, count=1))
    first, second = arena.refused(*words).splitlines()
    path = arena.tree / file
    assert first.startswith(f"{path}:1:17: schema_version: ")
    assert second.startswith(f"{path}:2:1: extra: unknown key 'extra'")


@pytest.mark.slow
def test_missing_bwrap_is_reported(shared: Arena, tmp_path: Path) -> None:
    path = {"PATH": str(tmp_path)}
    error = shared.refused(*RUN, env=path)
    assert error.startswith("bwrap is not on PATH; install it: `apt-get install bubblewrap`")
    done = shared("doctor", "--json", env=path)
    assert done.code == 2
    missing = {check["name"] for check in json.loads(done.out) if check["state"] == "missing"}
    assert missing == {"sandbox", "compiler"}
