"""`arena run`, from the command line to the leaderboard, in the real sandbox; and ended at every moment."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch")

from asking import asking
from command import Arena, alive, copy, killed, needs_sandbox, until
from stub import started

pytestmark = needs_sandbox

RUN = ("run", "--problem", "paged_attention", "--hardware", "cpu")
DOES_NOT_PARSE = "def solution(*inputs:\n"
SLEEPS = 'import time\nprint(\'{"type": "begin"}\', flush=True)\ntime.sleep(600)\n'
WRITES = "import sys\nopen('solution.py', 'w').write(sys.argv[1])\nprint('{\"type\": \"end\"}', flush=True)\n"


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return copy(tmp_path)


@pytest.fixture
def marker() -> str:
    """A word that no process of this machine has among its arguments, but for those of one test."""
    return f"marker-{uuid.uuid4().hex}"


def consistent(arena: Arena) -> dict[str, str]:
    """State of each run, once the leaderboard is rendered: what is committed is annotated, and nothing else is."""
    assert arena("leaderboard").code == 0
    states = {row["run"]: row["state"] for row in arena.json("list", "runs")}
    committed = [run for run, state in states.items() if state == "committed"]
    assert [path.name for path in arena.annotations if path.suffix == ".yaml"] == [f"{run}.yaml" for run in committed]
    for run in committed:
        result = arena.home / "workspaces" / run / "result.yaml"
        assert result.read_bytes() == (arena.home / "annotations" / f"{run}.yaml").read_bytes()
        assert yaml.safe_load(result.read_text())["run_id"] == run
    assert json.loads(arena.board()["leaderboard.json"])["trials"] == len(committed)
    return states


def kinds(arena: Arena) -> list[str]:
    return [json.loads(line)["kind"] for line in (arena.runs[-1] / "events.jsonl").read_text().splitlines()]


# ---------------------------------------------------------------- built-in models


def test_nop_and_all_that_a_run_leaves(arena: Arena) -> None:
    done = arena(*RUN, "--model", "nop", "--json")
    assert (done.code, "Traceback" in done.err) == (0, False), done.err
    [annotation] = json.loads(done.out)
    assert annotation["score"]["verdict"] == "missing"
    assert "peak_fraction" not in annotation["score"]
    assert (annotation["session"]["agent_status"], annotation["submission"]) == ("complete", None)
    [run] = arena.runs
    assert {path.name for path in run.iterdir()} >= {
        "manifest.json",
        "events.jsonl",
        "agent",
        "work",
        "score.json",
        "result.yaml",
    }
    assert kinds(arena) == ["created", "filled", "session_started", "session_ended", "collected", "committed", "annotated"]
    assert json.loads((run / "manifest.json").read_text())["cell"] == annotation["cell"]
    assert consistent(arena) == {annotation["run_id"]: "committed"}
    assert f"annotation  {arena.home}/annotations/{annotation['run_id']}.yaml" in done.err


@pytest.mark.slow
def test_trials_are_runs_of_one_cell(arena: Arena) -> None:
    done = arena(*RUN, "--model", "nop", "--trials", "2", "--json")
    first, second = json.loads(done.out)
    assert first["cell"] == second["cell"]
    assert "nop on paged_attention, trial 2: missing   (2 of 2 trials)" in done.err
    places = [json.loads((run / "manifest.json").read_text())["sweep"] for run in arena.runs]
    assert [place["trial"] for place in places] == [1, 2] and places[0]["name"] == places[1]["name"]
    before, name, _ = done.err.partition(f"`arena sweep {places[0]['name']}` goes on")
    assert name and "trial 1" not in before, "who kills it knows how to go on"
    assert len(consistent(arena)) == 2
    board = json.loads(arena.board()["leaderboard.json"])
    [entry] = board["tables"][0]["rows"][0]["entries"].values()
    assert (entry["passed"], entry["counted"], entry["outcomes"]) == (0, 2, {"missing": 2})


@pytest.mark.slow
def test_an_empty_account_stops_the_other_trials(arena: Arena, tmp_path: Path) -> None:
    with started(tmp_path / "stub.jsonl", "--mode", "no_credit") as stub:
        env = asking(arena, stub)
        done = arena(*RUN, "--model", "dry/m", "--trials", "3", "--budget", "1m", "--json", env=env)
    assert done.code == 1, done.err
    sessions = [annotation["session"] for annotation in json.loads(done.out)]
    assert [session["agent_status"] for session in sessions] == ["provider_error"], (sessions, done.err)
    [session] = sessions
    assert "add credit at the provider" in session["account_fault"] and session["account_fault"] in session["message"]
    said = " ".join(done.err.split())
    assert f"this run does not count (provider_error): {session['account_fault']}" in said
    assert "the other 2 would end the same way" in said
    [entry] = json.loads(arena.board()["leaderboard.json"])["tables"][0]["rows"][0]["entries"].values()
    assert entry["counted"] == 0


@pytest.mark.slow
def test_an_open_network_is_marked_everywhere(arena: Arena) -> None:
    done = arena(*RUN, "--model", "nop", "--network", "open", "--json")
    assert "unsealed: the agent had this machine's network" in done.err
    [annotation] = json.loads(done.out)
    assert (annotation["session"]["network"], annotation["session"]["unsealed"]) == ("open", True)
    assert json.loads((arena.runs[0] / "manifest.json").read_text())["network"] == "open"
    arena(*RUN, "--model", "nop")
    page = arena.board()["LEADERBOARD.md"].decode()
    rows = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| builtin")]
    assert rows == ["| builtin · nop", "| builtin · nop · **unsealed**"]


@pytest.mark.slow
def test_a_cheat_and_its_replay(arena: Arena) -> None:
    [cheat] = arena.json(*RUN, "--model", "cheat/exit_zero")
    [replay] = arena.json(*RUN, "--model", f"replay/{cheat['run_id']}")
    assert cheat["score"]["verdict"] == replay["score"]["verdict"] == "crashed"
    assert cheat["submission"] == replay["submission"]
    assert replay["cell"]["model"] == f"replay/{cheat['run_id']}"
    solution = arena.tree / "problems" / "paged_attention" / "solutions" / "cheat_exit_zero.py"
    assert (arena.runs[0] / "solution.py").read_bytes() == solution.read_bytes()


@pytest.mark.slow
def test_oracle_and_naive_pass_and_the_board_is_reproducible(arena: Arena) -> None:
    arena.one_shape()
    for model in ("oracle", "naive"):
        done = arena(*RUN, "--model", model)
        assert done.code == 0, done.err
        assert "verdict passed, peak_fraction" in done.err
    consistent(arena)
    scores = {row["run"].split("_")[2]: row["peak_fraction"] for row in arena.json("list", "runs")}
    assert scores["oracle"] > scores["naive"] > 0
    before = arena.board()
    for path in (arena.home / "leaderboard").iterdir():
        path.unlink()
    assert arena("leaderboard").code == 0
    assert arena.board() == before
    page = before["LEADERBOARD.md"].decode()
    assert f"{scores['oracle']:.3f}"[:4] in page
    shown = arena("show", arena.annotations[0].stem)
    assert shown.code == 0
    assert "peak_fraction" in shown.out and not shown.err


# ---------------------------------------------------------------- budget, effort, devices


def stored(arena: Arena, *writes: tuple[float, str]) -> str:
    """A run that is over, with file writes at these times (s)."""
    run = arena.home / "workspaces" / "20260101T000000Z_fake_fake_paged_attention_0000"
    (run / "snapshots").mkdir(parents=True)
    (run / "manifest.json").write_text("{}")
    for at_s, text in writes:
        digest = hashlib.sha256(text.encode()).hexdigest()[:8]
        (run / "snapshots" / f"{at_s * 1e3:08.0f}_{digest}.py").write_text(text)
    return run.name


@pytest.mark.slow
def test_solution_at_the_budgets_end_is_scored(arena: Arena) -> None:
    run = stored(arena, (5, DOES_NOT_PARSE), (300, "late = 1\n"))
    [annotation] = arena.json(*RUN, "--model", f"replay/{run}", "--budget", "2s")
    assert annotation["cell"]["budget_s"] == 2
    session, score = annotation["session"], annotation["score"]
    assert session["agent_status"] == "deadline"
    assert 2 <= session["elapsed_s"] < 20
    assert (score["verdict"], score["message"]) == ("crashed", "solution.py does not parse: line 1: '(' was never closed")
    assert (arena.runs[-1] / "solution.py").read_text() == DOES_NOT_PARSE


@pytest.mark.slow
@pytest.mark.parametrize("text", ["0", "0s", "-5m", "3d", "soon", "", "1e3", "nan"])
def test_budgets_of_zero_are_refused(text: str, arena: Arena) -> None:
    assert "45m, 90s or 1.5h" in arena.refused(*RUN, f"--budget={text}")
    assert not arena.runs


EFFORT = ("python", "-c", "import json, sys; print(json.dumps({'type': 'end', 'text': sys.argv[1]}))", "{effort}")


@pytest.mark.slow
def test_effort_replaces_the_models_own(arena: Arena) -> None:
    model = arena.harness("thinker", *EFFORT, models={"thinker-model": {"effort": "low"}})
    low, high = (arena.json(*RUN, "--model", model, *words)[0] for words in ((), ("--effort", "high")))
    assert (low["cell"]["effort"], high["cell"]["effort"]) == ("low", "high")
    said = [json.loads((run / "agent" / "stdout.jsonl").read_text())["text"] for run in arena.runs]
    assert sorted(said) == ["high", "low"]
    rows = json.loads(arena.board()["leaderboard.json"])["tables"][0]["rows"]
    assert sorted(row["effort"] for row in rows) == ["high", "low"]


@pytest.mark.slow
def test_efforts_that_cannot_be_asked_for(arena: Arena) -> None:
    model = arena.harness("thinker", *EFFORT)
    assert arena.refused(*RUN, "--effort", "high") == (
        "harness builtin takes no effort (none of its texts has {effort}): leave --effort out"
    )
    assert arena.refused(*RUN, "--model", model) == (
        "harness thinker needs an effort, and model thinker-model names none: give --effort"
    )
    assert "give a word" in arena.refused(*RUN, "--model", model, "--effort", "--yolo")
    assert not arena.runs


@pytest.mark.slow
def test_missing_devices_are_refused(arena: Arena) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has an NVIDIA device")
    done = arena(*RUN, "--hardware", "b200")
    assert done.code == 2
    assert "Traceback" not in done.err
    assert done.err.splitlines()[-1].startswith("arena: ")
    assert not arena.runs


# ---------------------------------------------------------------- what is wrong is said before anybody's time is spent


@pytest.mark.slow
def test_an_annotation_that_cannot_be_read_stops_the_next_run(arena: Arena) -> None:
    (arena.home / "annotations").mkdir(parents=True)
    broken = arena.home / "annotations" / "20260101T000000Z_x.yaml"
    broken.write_text("schema_version: 1\nrun_id: [\n")
    said = arena.refused(*RUN, "--model", "nop")
    assert re.match(rf"{re.escape(str(broken))}:\d+:\d+: ", said)
    assert not arena.runs


@pytest.mark.parametrize(
    "words", [RUN, ("leaderboard",), ("annotate", "x", "-v", "clean", "-s", "y")], ids=lambda words: words[0]
)
def test_homes_that_cannot_be_made_are_refused(words: tuple[str, ...], arena: Arena) -> None:
    arena.home.write_text("a file where the folder should be")
    inside = arena.home / "results"
    assert arena.refused(*words, env={"ARENA_HOME": str(inside)}) == (
        f"{inside}: cannot be written (Not a directory); set ARENA_HOME to a folder that can"
    )


@pytest.mark.slow
def test_unwritable_homes_are_refused_by_run(arena: Arena) -> None:
    arena.home.mkdir(mode=0o500)
    if os.geteuid() == 0:
        # Nothing is closed to root, but for what the kernel itself does not offer.
        assert "/proc/here: cannot be written (" in arena.refused(*RUN, env={"ARENA_HOME": "/proc/here"})
    else:
        assert arena.refused(*RUN) == f"{arena.home}: cannot be written (Permission denied); set ARENA_HOME to a folder that can"


@pytest.mark.slow
def test_our_own_failure_ends_the_run_and_is_noted(arena: Arena) -> None:
    model = arena.harness("broken", "python", env={"A": "nul\0"})
    done = arena(*RUN, "--model", model)
    assert done.code == 2
    assert "holds a NUL character" in done.err
    assert "Traceback" not in done.err
    assert kinds(arena)[-1] == "failed"
    assert set(consistent(arena).values()) == {"interrupted"}
    assert "interrupted" in arena("show", arena.runs[0].name).out


@pytest.mark.slow
def test_judge_failures_are_recorded_with_exit_code_1(arena: Arena) -> None:
    arena.edit("problems/paged_attention/hidden.py", lambda text: text.replace("INPUT_CLASSES", "MOODS"))
    model = arena.harness("writer", "python", "-c", WRITES, "x = 1\n")
    [annotation] = arena.json(*RUN, "--model", model, code=1)
    assert annotation["score"]["verdict"] == "judge_failed"
    assert "does not define INPUT_CLASSES" in annotation["score"]["message"]
    assert set(consistent(arena).values()) == {"committed"}


# ---------------------------------------------------------------- ended from outside


def sleeping_agent(arena: Arena, marker: str) -> str:
    return arena.harness("sleeper", "python", "-c", SLEEPS, marker)


def sleeping_solution(arena: Arena, marker: str) -> str:
    """Its agent is soon done; its solution has `marker` sleep while it is imported by the judge."""
    source = f"import subprocess\nsubprocess.run(['sh', '-c', 'sleep 600; exit 1', {marker!r}])\n"
    return arena.harness("writer", "python", "-c", WRITES, source)


def at_work(arena: Arena, marker: str, phase: str) -> None:
    """Wait until the marked process runs in that phase."""

    def there() -> bool:
        return bool(arena.runs and (phase == "agent" or (arena.runs[0] / "solution.py").exists()) and alive(marker))

    until(there, f"{marker} as {phase}")


@pytest.mark.slow
@pytest.mark.parametrize("given", [sleeping_agent, sleeping_solution], ids=["agent", "judge"])
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=lambda end: end.name)
def test_arena_ended_while_an_agent_works(end: signal.Signals, given, arena: Arena, marker: str) -> None:
    model = given(arena, marker)
    with killed(arena.start(*RUN, "--model", model)) as process:
        at_work(arena, marker, "agent" if given is sleeping_agent else "judge")
        assert {row["state"] for row in arena.json("list", "runs")} == {"running"}
        process.send_signal(end)
        out, err = process.communicate(timeout=30)
        if end == signal.SIGINT:
            assert process.returncode == 130, err
            assert alive(marker) == [], "arena ended before what it had started"
            assert err.splitlines()[-1] == "arena: interrupted; `arena list runs` shows what was left"
        assert "Traceback" not in err
        assert out == ""
    until(lambda: not alive(marker), "the end of all processes", limit_s=10)
    left = "interrupted" if given is sleeping_agent else "unjudged"
    assert set(consistent(arena).values()) == {left}
    if left == "interrupted":
        error = arena.refused("judge", "latest")
        assert "was interrupted before its session ended: nothing can be judged" in error


@pytest.mark.slow
def test_a_run_is_judged_later(arena: Arena, marker: str) -> None:
    """A kill in the judge costs no session: the run gets the same annotation as without the kill."""
    model = sleeping_solution(arena, marker)
    with killed(arena.start(*RUN, "--model", model)):
        at_work(arena, marker, "judge")
        assert arena.refused("judge", "latest").endswith("is still running: wait for its end")
    until(lambda: not alive(marker), "the end of all processes", limit_s=10)
    [run] = arena.runs
    ended = json.loads((run / "session.json").read_text())
    source = (run / "solution.py").read_bytes()
    (run / "solution.py").write_text("pass\n")
    assert "is not the submission of this run" in arena.refused("judge", "latest")
    short = b"x = 1\n"  # what the session left, were it not asleep
    (run / "solution.py").write_bytes(short)
    record = {"sha256": hashlib.sha256(short).hexdigest(), "bytes": len(short), "lines": 1}
    ended["session"]["message"] = "what an agent \x7f\x85\u2028\U0001f600 may have said"
    (run / "session.json").write_text(json.dumps(ended | {"submission": record}, ensure_ascii=False))
    assert source != short
    annotation = arena.json("judge", "latest")
    assert annotation["score"]["verdict"] == "crashed" and annotation["submission"] == record
    assert annotation["session"]["message"] == ended["session"]["message"]
    assert kinds(arena).count("collected") == 1 and kinds(arena)[-3:] == ["reopened", "committed", "annotated"]
    assert set(consistent(arena).values()) == {"committed"}
    assert "has its score already (crashed)" in arena.refused("judge", "latest")
    # As it is when SIGKILL comes between score and commit: the score stands, and no other is drawn.
    (run / "result.yaml").unlink()
    score = json.loads((run / "score.json").read_text()) | {"message": "drawn once"}
    (run / "score.json").write_text(json.dumps(score))
    assert arena.json("judge", "latest")["score"]["message"] == "drawn once"


@pytest.mark.slow
def test_a_failed_judge_is_asked_again(arena: Arena) -> None:
    hidden = arena.tree / "problems/paged_attention/hidden.py"
    good, model = hidden.read_text(), arena.harness("writer", "python", "-c", WRITES, "x = 1\n")
    arena.edit("problems/paged_attention/hidden.py", lambda text: text.replace("INPUT_CLASSES", "MOODS"))
    [failed] = arena.json(*RUN, "--model", model, code=1)
    assert failed["score"]["verdict"] == "judge_failed"
    hidden.write_text(good)
    assert "problem paged_attention has changed since" in arena.refused("judge", failed["run_id"])
    hidden.write_text(good.replace("INPUT_CLASSES", "MOODS"))
    assert arena.json("judge", failed["run_id"], code=1)["score"]["verdict"] == "judge_failed"
    [row] = arena.json("list", "runs")
    assert (row["state"], row["verdict"]) == ("committed", "judge_failed")


FULL_DISK = """
mount -t tmpfs -o size=1100m none "$ARENA_HOME" || exit 99
{
    until [ -s "$ARENA_HOME"/workspaces/2*/agent/stdout.jsonl ]; do sleep 0.05; done
    cat /dev/zero > "$ARENA_HOME/others"
} 2>/dev/null &
"$@"
code=$?
wait
rm "$ARENA_HOME/others"
cp -a "$ARENA_HOME" "$COPY"
exit $code
"""
FLOODS = """
import time
print('{}', flush=True)
time.sleep(4)
open('solution.py', 'w').write('def solution(*inputs:\\n')
print('x' * 10_000_000)
print('{"type": "end"}', flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_a_disk_that_fills_up_loses_no_record(arena: Arena, tmp_path: Path) -> None:
    """Another program fills it while the agent works. The run's own files have their room from its start on."""
    model = arena.harness("flooder", "python", "-c", FLOODS, limits={"workspace_mib": 8})
    arena.home.mkdir()
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", FULL_DISK, "sh", sys.executable, "-m", "arena", *RUN, "--model", model],
        env=arena.environment(COPY=str(tmp_path / "kept")),
        cwd=arena.tree.parent,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr, done.stderr
    [run] = (tmp_path / "kept/workspaces").glob("2*")
    result = yaml.safe_load((run / "result.yaml").read_text())
    assert result["session"]["agent_status"] == "complete"
    assert "No space left on device" in result["session"]["message"]
    assert (run / "solution.py").read_text() == DOES_NOT_PARSE
    assert result["score"]["verdict"] == "crashed"


MOMENTS = {
    "reserved": lambda home: any(home.glob("workspaces/.2*")),
    "scored": lambda home: any(home.glob("workspaces/2*/score.json")),
    "committed": lambda home: any(home.glob("workspaces/2*/result.yaml")),
    "annotated": lambda home: any(home.glob("annotations/2*.yaml")),
    "rendered": lambda home: any(home.glob("leaderboard/leaderboard.json")),
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at(moment: str, arena: Arena, marker: str) -> None:
    model = arena.harness("writer", "python", "-c", WRITES, DOES_NOT_PARSE, marker)
    with killed(arena.start(*RUN, "--model", model)) as process:
        until(lambda: MOMENTS[moment](arena.home), moment)
    assert process.returncode in (-signal.SIGKILL, 0)
    until(lambda: not alive(marker), "the end of all processes", limit_s=10)
    assert set(consistent(arena).values()) <= {"committed", "interrupted", "unjudged"}
    # A temporary file may be left behind, under a hidden name that nothing reads; what bears its final name is whole.
    assert all(path.name.startswith(".") for path in arena.home.glob("*/*.tmp"))
    for board in arena.home.glob("leaderboard/*.json"):
        json.loads(board.read_text())


@pytest.mark.slow
def test_runs_killed_after_their_commit_are_annotated_later(arena: Arena) -> None:
    assert arena(*RUN, "--model", "nop").code == 0
    [annotation], before = arena.annotations, arena.board()
    # As it is when SIGKILL comes right after the commit.
    annotation.unlink()
    events = arena.runs[0] / "events.jsonl"
    events.write_text("".join(line for line in events.read_text().splitlines(keepends=True) if "annotated" not in line))
    assert arena.json("list", "runs")[0]["state"] == "committed"
    consistent(arena)
    assert arena.board() == before


@pytest.mark.slow
def test_removed_annotations_stay_removed(arena: Arena) -> None:
    assert arena(*RUN, "--model", "nop").code == 0
    arena.annotations[0].unlink()
    assert arena("leaderboard").code == 0
    assert arena.annotations == []
    assert json.loads(arena.board()["leaderboard.json"])["trials"] == 0


@pytest.mark.slow
def test_runs_that_end_together_are_all_in_the_leaderboard(arena: Arena) -> None:
    with ThreadPoolExecutor() as pool:
        ended = list(pool.map(lambda _: arena(*RUN, "--model", "nop"), range(3)))
    assert [done.code for done in ended] == [0, 0, 0]
    before = arena.board()
    assert len(consistent(arena)) == 3
    assert arena.board() == before
