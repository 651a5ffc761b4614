"""The progress of a run: its line at several widths, JSON lines for programs, what -q and -v change, and the log file."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from command import RUN, Arena, copy, needs_sandbox

from arena.agents.supervisor import Activity, Progress
from arena.cli.console import amount, progress_line

WORKING = Activity(
    steps=41, requests=63, asking="waiting for an answer", tokens=1_234_567, cost_usd=1.4213, snapshots=5, check="passed"
)
RETRYING = Activity(
    steps=1, requests=3, asking="retrying after status 429", tokens=900, cost_usd=None, snapshots=1, check="failed"
)
CHECKING = "Bash: python check.py && python benchmark.py --all"
SCREENS = [
    (60, Progress("start", "looking at the machine"), "start    0:00  looking at the machine"),
    (60, Progress("agent", "", 3.0, 2700.0, Activity()), "agent 44:57 left"),
    (60, Progress("agent", CHECKING, 723.0, 2700.0, WORKING), "agent 32:57 left  check passed, 41 steps, $1.42  Bash: pyth…"),
    (60, Progress("agent", CHECKING, 723.0, 2700.0, RETRYING), "agent 32:57 left  retrying after status 429  Bash: python c…"),
    (
        140,
        Progress("agent", CHECKING, 723.0, 2700.0, WORKING),
        "agent    12:03 of 45:00  32:57 left, check passed, 41 steps, $1.42, 1.2M tokens, 5 snapshots, 63 requests  "
        "Bash: python check.py && python …",
    ),
    (
        140,
        Progress("agent", CHECKING, 723.0, 2700.0, RETRYING),
        "agent    12:03 of 45:00  32:57 left, retrying after status 429, check failed, 1 step, 900 tokens, 1 snapshot  "
        "Bash: python check.py && pyth…",
    ),
    (140, Progress("lingering", "done", 2800.0, 2700.0, Activity()), "lingering 46:40 of 45:00  0:00 left  done"),
    (60, Progress("judge", "checking B=4, Hq=8, Hkv=2, D=64, mean_len=300, page=16"), None),
]


@pytest.mark.parametrize(("columns", "progress", "screen"), SCREENS)
def test_progress_line_fits_the_columns(columns: int, progress: Progress, screen: str | None) -> None:
    line = progress_line(progress, columns).plain
    assert len(line) <= columns and "\n" not in line
    assert line == (screen or "judge    0:00  checking B=4, Hq=8, Hkv=2, D=64, mean_len=30…")


def test_amounts_are_short() -> None:
    assert [amount(count) for count in (0, 999, 1000, 999_499, 999_500, 12_345_678)] == [
        "0",
        "999",
        "1k",
        "999k",
        "1.0M",
        "12.3M",
    ]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Arena, list[str]]:
    """A run of a cheat that ends at its first import: a whole run in a few seconds; and its standard error."""
    pytest.importorskip("torch")
    arena = copy(tmp_path_factory.mktemp("played"))
    done = arena("--log-file", str(arena.tree.parent / "log.txt"), *RUN, "-m", "cheat/exit_zero", "--progress", "jsonl")
    assert (done.code, done.out) == (0, ""), done.err
    return arena, done.err.splitlines()


@pytest.mark.slow
@needs_sandbox
def test_jsonl_has_an_object_for_each_change(played: tuple[Arena, list[str]]) -> None:
    found = [json.loads(line) for line in played[1] if line.startswith("{")]
    assert list(found[0]) == ["phase", "text", "elapsed_s", "budget_s", "activity"]
    phases = list(dict.fromkeys(each["phase"] for each in found))
    assert [phase for phase in phases if phase != "lingering"] == ["start", "agent", "ended", "judge"]
    unclocked = [each | {"elapsed_s": 0} for each in found]
    assert all(one != other for one, other in pairwise(unclocked))
    last = [each for each in found if each["phase"] == "agent"][-1]
    assert (last["text"], last["activity"]["steps"]) == ("run: python check.py", 2)
    assert last["budget_s"] == 2700.0


@needs_sandbox
def test_no_line_of_a_built_in_agent_is_raw_json(played: tuple[Arena, list[str]]) -> None:
    texts = [json.loads(line)["text"] for line in played[1] if line.startswith("{")]
    assert "run: python check.py" in texts
    assert [text for text in texts if text.startswith("{")] == []


@needs_sandbox
def test_the_log_file_has_what_people_saw(played: tuple[Arena, list[str]]) -> None:
    lines = (played[0].tree.parent / "log.txt").read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in lines)
    assert any("verdict crashed" in line for line in lines)
    assert "\x1b" not in "".join(lines)


@pytest.mark.slow
def test_quiet_prints_errors_alone(shared: Arena, tmp_path: Path) -> None:
    assert shared("-q", "list", "runs")[:3] == (0, "", "")
    assert shared("list", "runs").err == "no runs\n"
    log = tmp_path / "log.txt"
    assert shared("-q", "--log-file", str(log), "list", "runs").err == ""
    assert log.read_text().endswith("Z no runs\n")
    done = shared("-q", "show", "x")
    assert (done.code, done.err) == (2, "arena: unknown run 'x' (known: none)\n")
    assert "fp8_gemm" in shared("-q", "list", "problems").out
    assert shared.refused("-q", "-v", "list", "runs") == "--verbose and --quiet exclude each other"


@pytest.mark.slow
@needs_sandbox
def test_verbose_prints_each_step(arena: Arena) -> None:
    pytest.importorskip("torch")
    done = arena("-v", *RUN, "-m", "cheat/exit_zero")
    assert done.code == 0, done.err
    assert any(line.startswith("agent ") and line.endswith("run: python check.py") for line in done.err.splitlines())
