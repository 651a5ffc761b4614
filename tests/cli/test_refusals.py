"""Help, wrong usage, and files or programs that are missing."""

import json
import re
from pathlib import Path

import pytest
from command import ROOT, RUN, Arena, needs_sandbox

COMMANDS = (
    "run",
    "score",
    "check",
    "compare",
    "baseline",
    "sandbox",
    "list",
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
KNOWN = ", ".join(sorted(path.parent.name for path in (ROOT / "problems").glob("*/problem.yaml")))
UNNAMED = f"name the problems to check, or --all (known: {KNOWN})"


def test_help_lists_every_command(shared: Arena) -> None:
    overview = shared("--help")
    assert (overview.code, overview.err) == (0, "")
    assert [name for name in COMMANDS if f" {name} " not in overview.out] == []
    # One process for all: starting eleven takes longer than all else that they do.
    every = "import sys; from arena.cli import cli; [cli([name, '-h'], 'arena', standalone_mode=False) for name in sys.argv[1:]]"
    done = shared.python(every, *COMMANDS)
    assert (done.code, done.err) == (0, "")
    assert [name for name in COMMANDS if f"Usage: arena {name}" not in done.out] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "-p", "paged_atention"), "unknown problem 'paged_atention': did you mean 'paged_attention'? (known: paged_att"),
        ((*RUN, "-m", "orcle"), "unknown model 'orcle': did you mean 'oracle'? (known: oracle, "),
        ((*RUN, "-m", "builtin/noop"), "unknown model 'builtin/noop'"),
        (
            (*RUN, "-m", "cheat/exit_zer"),
            "unknown cheat of paged_attention 'exit_zer': did you mean 'exit_zero'? (known: exit_zero, ",
        ),
        ((*RUN, "-m", "replay/x"), "unknown run with stored file writes 'x' (known: none)"),
        ((*RUN, "--hardware", "H20"), "unknown hardware 'H20': did you mean 'h20'? (known: h20, h200, "),
        ((*RUN, "--sandbox", "brap"), "unknown sandbox 'brap'"),
        (("score", "x.py", "-p", "paged"), "unknown problem 'paged'"),
        (("score", "no/such.py", "-p", "paged_attention", "--hardware", "cpu"), "no/such.py: no such file"),
        (("check", "page"), "unknown problem 'page'"),
        (("check",), UNNAMED),
        (
            ("check", "--all", "paged_attention"),
            UNNAMED,
        ),
        (("sandbox", "-p", "paged", "ls"), "unknown problem 'paged'"),
        (("sandbox", "--kind", "worker", "-p", "paged_attention", "ls"), "a worker has no workspace"),
        (("sandbox", "--kund", "agent", "ls"), "No such option"),
        (("sandbox", "--kind", "worker", "--network", "open", "ls"), "a submission runs without a network"),
        ((*RUN, "--network", "opn"), "Invalid value for '--network': 'opn' is not one of 'none', 'allow', 'open'"),
        ((*RUN, "--network", "allow"), "--network allow needs at least one --allow HOST"),
        ((*RUN, "--allow", "mirror.test"), "--allow and --allow-private mean nothing with --network none: give --network allow"),
        (
            ("sandbox", "--network", "allow", "--allow", "1.2.3.4", "ls"),
            "--allow '1.2.3.4': give a host name such as mirror.test",
        ),
        (("show", "x"), "unknown run 'x' (known: none)"),
        (("open", "x"), "unknown run 'x' (known: none)"),
        (("curve", "x"), "unknown run 'x' (known: none)"),
        (("review", "--by", "A", "--json"), "--by asks questions: leave out --json"),
        (("site", "--runs", "some"), "Invalid value for '--runs': 'some' is not one of 'all', 'public', 'none'"),
        (("show", "../tree/x"), "unknown run '../tree/x' (known: none)"),
        (("annotate", "x", "-v", "clean", "-s", "y"), "unknown run 'x' (known: none)"),
        (("annotate", "x", "-v", "nice", "-s", "y"), "Invalid value for '--verdict' / '-v': 'nice' is not one of 'clean', 'rub"),
        (
            ("list", "things"),
            "Invalid value for 'WHAT': 'things' is not one of 'problems', 'models', 'harnesses', 'routes', 'h",
        ),
        (("list",), "Missing argument 'WHAT'"),
        (("run",), "Missing option '--problem' / '-p'. (`arena run -h` shows how)"),
        ((*RUN, "--trials", "0"), "Invalid value for '--trials' / '-n': 0 is not in the range x>=1."),
        ((*RUN, "extra"), "Got unexpected extra argument (extra)"),
        (("schema", "prolbem"), "Invalid value for '[RECORD]': 'prolbem' is not one of 'problem', "),
        (("runn",), "unknown command 'runn': did you mean 'run'? (known: run, "),
        (("--nope",), "No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_unknown_names_list_the_choices(words: tuple[str, ...], message: str, shared: Arena) -> None:
    error = shared.refused(*words)
    assert error.startswith(message)
    assert "\n" not in error
    assert not shared.runs


A100 = ("--hardware", "a100-80gb-sxm")
NO_FP8 = "NVIDIA A100 SXM4 80 GB has no fp8 arithmetic, whose peak bounds fp8_gemm (it has fp64, "


@pytest.mark.parametrize("words", [("run", "-p"), ("score", "x.py", "-p"), ("check",)], ids=str)
def test_problem_of_an_absent_arithmetic_is_refused(words: tuple[str, ...], shared: Arena) -> None:
    pytest.importorskip("torch")
    error = shared.refused(*words, "fp8_gemm", *A100)
    assert error.startswith(NO_FP8)
    assert "\n" not in error
    assert not shared.runs


@needs_sandbox
def test_check_all_leaves_out_what_the_gpu_cannot_score(shared: Arena) -> None:
    pytest.importorskip("torch")
    done = shared("check", "--all", *A100)
    left_out, *rest = done.err.splitlines()
    assert left_out.startswith(f"left out: {NO_FP8}")
    # The others come next, and this machine has no such GPU.
    assert done.code == 2
    assert any("NVIDIA A100 SXM4 80 GB" in line for line in rest if line.startswith("arena: "))


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


def test_missing_bwrap_is_reported(shared: Arena, tmp_path: Path) -> None:
    path = {"PATH": str(tmp_path)}
    error = shared.refused(*RUN, env=path)
    assert error.startswith("bwrap is not on PATH; install it: `apt-get install bubblewrap`")
    done = shared("doctor", "--json", env=path)
    assert done.code == 2
    missing = {check["name"] for check in json.loads(done.out) if check["state"] == "missing"}
    assert missing == {"sandbox", "compiler"}
