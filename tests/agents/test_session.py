"""Sessions in the real sandbox, with harnesses that are a shell or Python script: every way an agent may end or misbehave."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import command
import pytest
from command import needs_sandbox
from records import cell, folders, problem
from sandbox_programs import SLOW_DEATH
from sessions import DONE, agent, play, python, spec_of

from arena import catalog, paths
from arena.agents import replay, session
from arena.agents.select import SelectedModel, find_model
from arena.agents.snapshots import stored
from arena.agents.supervisor import Progress
from arena.errors import DataError, SandboxError, UsageError
from arena.results import run_folder
from arena.results.run_folder import RunFolder
from arena.run_cell import _charged, _left_dying, await_end
from arena.sandboxes import RunningSandbox, SandboxSpec, bwrap
from arena.sandboxes.running import SandboxHandle, await_dying
from arena.schema import JudgeFailed, Model, Timings
from arena.submission import NoSubmission, collect
from arena.system import tempdirs

pytestmark = needs_sandbox


@pytest.fixture
def run(tmp_path: Path):
    with run_folder.create(cell(), manifest={}, root=tmp_path / "runs") as made:
        yield made
        # Python's own removal of a folder ends in RecursionError on what a prankster may leave.
        made.work.chmod(0o700)
        subprocess.run(["rm", "-rf", "--one-file-system", str(made.work)], check=True)
        made.work.mkdir()


def test_complete(run: RunFolder) -> None:
    said: list[Progress] = []
    played = play(
        python(
            "open('solution.py', 'w').write('x = 1')\nprint('a line')\nprint('[1]')\n"
            + DONE
            + "import sys; print('note', file=sys.stderr)"
        ),
        run,
        report=said.append,
    )
    assert (played.agent_status, played.exit_code, played.events, played.snapshots) == ("complete", 0, 1, 1)
    assert (played.overshoot_s, played.network, played.sandbox) == (0.0, "none", "bwrap")
    assert 0 < played.elapsed_s < 20
    assert played.limits
    assert collect(run.work).source == b"x = 1"
    assert (run.agent / "stdout.jsonl").read_text() == 'a line\n[1]\n{"type": "end"}\n'
    assert (run.agent / "stderr.log").read_text() == "note\n"
    assert [event["kind"] for event in run_folder.read_events(run)] == ["created", "session_started", "session_ended"]
    assert said[-1].phase == "ended"


@pytest.mark.parametrize(
    ("program", "terminal", "status", "code"),
    [
        (DONE + "raise SystemExit(3)", True, "complete", 3),
        ('print(\'{"type": "other"}\')', True, "crashed", 0),
        ("open('note', 'w').write('x')", True, "crashed", 0),
        ("open('note', 'w').write('x')", False, "complete", 0),
        ('print(\'{"type": "end"}\')', False, "complete", 0),
        ("print('no event')", True, "no_activity", 0),
        ("print('no event')", False, "no_activity", 0),
        ("raise SystemExit(4)", False, "crashed", 4),
        ("print('{}'); 1 / 0", True, "crashed", 1),
        ("import os; os.kill(os.getpid(), 9)", True, "crashed", 137),
    ],
)
def test_the_table_of_endings(program: str, terminal: bool, status: str, code: int, run: RunFolder) -> None:
    played = play(python(program, terminal_event={"type": "end"} if terminal else None), run)
    assert (played.agent_status, played.exit_code) == (status, code), played.message


def test_missing_commands_crash(run: RunFolder) -> None:
    played = play(agent("no-such-program"), run)
    assert played.agent_status == "crashed"
    assert "no-such-program" in played.message


def test_crash_messages_end_with_stderr(run: RunFolder) -> None:
    played = play(python("import sys; sys.exit('\\x1b[31mout of\\tcoffee\\x07')"), run)
    assert played.message == "the command ended with exit code 1; agent/stderr.log ends: [31mout of coffee"


@pytest.mark.parametrize("how", ["stdin", "argument", "file"])
def test_the_prompt_arrives(how: str, run: RunFolder) -> None:
    (run.work / "PROMPT.md").write_text("from the file")
    chosen = agent(
        "python",
        "-c",
        "import json, sys; print(json.dumps([sys.argv[1:], sys.stdin.read()]))",
        "{model}",
        "-e={effort}",
        prompt=how,
    )
    play(chosen, run, prompt="Write a {model} kernel.\n")
    arguments, stdin = json.loads((run.agent / "stdout.jsonl").read_text())
    assert arguments[:2] == ["m", "-e=high"]
    assert arguments[2:] == (["Write a {model} kernel.\n"] if how == "argument" else [])
    assert stdin == ("Write a {model} kernel.\n" if how == "stdin" else "")


def test_missing_efforts_are_refused(run: RunFolder) -> None:
    chosen = agent("true", "{effort}")._replace(model=Model())
    with pytest.raises(UsageError, match="model m names none"):
        play(chosen, run)


def test_files_and_environment_of_a_harness(run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("{}")
    chosen = agent(
        "sh",
        "-c",
        'cat /opt/fake/config; echo "$COLOUR"; touch /opt/fake/config',
        files={"/opt/fake/config": "settings.json"},
        env={"COLOUR": "red"},
    )
    played = play(chosen, run, harness_folder=tmp_path)
    assert (run.agent / "stdout.jsonl").read_text() == "{}red\n"
    assert played.agent_status == "crashed", "the file is read-only"


@pytest.mark.timing
def test_deadline_of_an_agent_that_ignores_sigterm(run: RunFolder) -> None:
    said: list[Progress] = []
    chosen = python("import signal, time; signal.signal(15, signal.SIG_IGN); print('{}', flush=True)\nwhile True: time.sleep(1)")
    began = time.monotonic()
    played = play(chosen, run, budget_s=2.0, grace_s=0.5, report=said.append)
    wall_s = time.monotonic() - began
    assert (played.agent_status, played.exit_code) == ("deadline", None)
    assert 0.5 <= played.overshoot_s < 0.75
    assert 2.5 <= played.elapsed_s < 2.75
    assert wall_s < 10
    assert {"agent", "stopping", "ended"} <= {progress.phase for progress in said}


@pytest.mark.slow
@pytest.mark.timing
def test_the_end_is_quick_with_1000_deaf_processes(run: RunFolder) -> None:
    """From the end of budget and grace to the session's record, the submission included: five seconds at most."""
    chosen = python(
        "import os, signal, time\n"
        "signal.signal(15, signal.SIG_IGN); open('solution.py', 'w').write('x = 1'); held = bytearray(1 << 20)\n"
        "for _ in range(1000):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        while True: time.sleep(60)\n"
        "print('{}', flush=True)\n"
        "while True: time.sleep(60)"
    )
    began = time.monotonic()
    done = session.play(spec_of(chosen, budget_s=6.0, grace_s=0.5), run, "")
    assert (done.session.agent_status, done.session.events) == ("deadline", 1), "all its processes are there"
    assert done.submission is not None
    assert time.monotonic() - began < 6.5 + 5


@pytest.mark.slow
def test_deadline_of_an_agent_that_listens_to_sigterm(run: RunFolder) -> None:
    """What it says after the budget's end, even that it is done, does not make it complete."""
    chosen = python(
        "import signal, sys, time\n"
        "def bye(*_):\n"
        "    print('{\"type\": \"end\"}', flush=True); open('note', 'w').write('saved'); sys.exit(7)\n"
        "signal.signal(15, bye); print('{}', flush=True)\n"
        "while True: time.sleep(1)"
    )
    played = play(chosen, run, budget_s=1.5)
    assert (played.agent_status, played.exit_code, played.events) == ("deadline", 7, 2)
    assert 0 <= played.overshoot_s < 5
    assert (run.work / "note").read_text() == "saved"


ON_TIME = """
import json, os, pathlib, time
told = json.load(open("TIME"))
print(json.dumps({"left": told["ends_at"] - time.time(), "of": told["budget_s"]}), flush=True)
kept = pathlib.Path("solution.py"); kept.write_text("# mine")
DO
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "do",
    [
        "pathlib.Path('TIME').write_text(json.dumps({'ends_at': 9e9, 'budget_s': 9e9}))",
        "os.remove('TIME')",
        "os.remove('TIME'); os.symlink('solution.py', 'TIME')",
        "os.remove('TIME'); os.mkdir('TIME')",
    ],
    ids=["changed", "deleted", "a link", "a folder"],
)
def test_the_file_that_tells_the_time_moves_no_clock(do: str, run: RunFolder) -> None:
    played = session.play(spec_of(python(ON_TIME.replace("DO", do)), budget_s=3.0, grace_s=0.5), run, "")
    said = json.loads((run.agent / "stdout.jsonl").read_text().splitlines()[0])
    assert said["of"] == 3.0 and 0 < said["left"] <= 3.0
    assert played.session.agent_status == "deadline" and 3.0 <= played.session.elapsed_s < 8
    assert played.submission is not None and played.submission.source == b"# mine"


@pytest.mark.slow
def test_lingering_after_the_terminal_event(run: RunFolder) -> None:
    played = play(python(DONE + "import time; time.sleep(60)"), run, linger_s=1.0)
    assert (played.agent_status, played.exit_code, played.overshoot_s) == ("complete", None, 0.0)
    assert 1.0 <= played.elapsed_s < 10
    played = play(python(DONE + "import time; time.sleep(60)"), run, budget_s=1.5)
    assert (played.agent_status, played.exit_code, played.overshoot_s) == ("complete", None, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["y\n", "x" * 999, '{"a": "' + "b" * 90 + '"}\n'], ids=["lines", "no newline", "events"])
def test_flood(line: str, run: RunFolder) -> None:
    """200 MB are read without blocking the agent, and the first 64 MiB kept."""
    program = f"""
        import os
        piece = {line!r} * (1_000_000 // {len(line)})
        for _ in range(200):
            data = piece.encode()
            while data:
                data = data[os.write(1, data):]
        print()
        print('{{"type": "end"}}')
    """
    played = play(python(program), run, budget_s=120)
    assert played.agent_status == "complete"
    assert played.events == (2_000_001 if "{" in line else 1)
    with (run.agent / "stdout.jsonl").open("rb") as file:
        file.seek(64 << 20)
        assert file.read() == b'\n{"arena": "cut here", "kept_bytes": 67108864}\n'


@pytest.mark.slow
def test_flood_that_never_ends(run: RunFolder) -> None:
    played = play(agent("sh", "-c", "yes '{}' & yes >&2"), run, budget_s=3.0, grace_s=1.0)
    assert played.agent_status == "deadline"
    assert played.overshoot_s < 3
    assert (run.agent / "stderr.log").stat().st_size <= (64 << 20) + 100


def test_broken_events(run: RunFolder) -> None:
    """Invalid UTF-8, endless brackets and numbers, lines of 5 MiB, halves of events: none counts, none hurts."""
    program = r"""
        import os, sys
        out = sys.stdout.buffer
        out.write(b'\xff\xfe{}\n{"a": "\xff"}\n' + b'{"a":' * 500_000 + b'\n' + b'{"a":' + b'9' * 1_000_000 + b'}\n')
        out.write(b'{"a": "' + b'x' * (5 << 20) + b'"}\n{"type": \n"end"}\n{"type": "\\ud800\\u001b[2J"}\n{"type"')
        out.flush()
        print(': "end"}', end="")
    """
    played = play(python(program), run)
    assert (played.agent_status, played.events) == ("complete", 2)


@pytest.mark.slow
def test_displayed_text_is_harmless(run: RunFolder) -> None:
    said: list[Progress] = []
    program = r"""
        import json, time
        print(json.dumps({"type": "x", "text": "\x1b]0;title\x07red\x1b[31m\n\u202eover\ud800" + "y" * 9999}), flush=True)
        time.sleep(1.5)
    """
    play(python(program), run, report=said.append)
    text = next(progress.text for progress in said if "red" in progress.text)
    assert re.fullmatch(r"\]0;titlered\[31m overy+", text)
    assert len(text) <= 160


def test_daemons_end_with_the_session(run: RunFolder) -> None:
    program = """
        import os, signal, time
        if os.fork() == 0:
            os.setsid()
            for number in (1, 2, 13, 15):
                signal.signal(number, signal.SIG_IGN)
            if os.fork() == 0:
                while True:
                    open('beat', 'a').write('x')
                    time.sleep(0.02)
        time.sleep(0.5)
        print('{"type": "end"}')
    """
    played = play(python(program), run)
    assert played.agent_status == "complete"
    size = (run.work / "beat").stat().st_size
    time.sleep(0.3)
    assert (run.work / "beat").stat().st_size == size > 0


@pytest.mark.slow
def test_hostile_workspaces_are_survived(run: RunFolder) -> None:
    """The workspace at the end is links, FIFOs, a huge sparse file, a deep tree and folders nobody may read."""
    for name in ("reference.py", "check.py", "PROMPT.md"):
        (run.work / name).write_text("ours")
    program = """
        import os, time
        for name in os.listdir():
            os.unlink(name)
            os.symlink("/etc/passwd", name)
        os.mkfifo("solution.py")
        time.sleep(1.5)
        os.unlink("solution.py")
        os.symlink("/proc/self/environ", "solution.py")
        time.sleep(1.5)
        os.unlink("solution.py")
        os.mkfifo("manifest.json")
        with open("solution.py", "wb") as file:
            try:
                file.truncate(10 << 30)
            except OSError:
                file.truncate(1 << 30)
        time.sleep(1.5)
        for _ in range(6000):
            os.mkdir("d")
            os.chdir("d")
        os.chdir("/workspace")
        os.chmod("/workspace", 0)
        print('{"type": "end"}')
    """
    played = play(python(program), run)
    assert (played.agent_status, played.snapshots) == ("complete", 0), played.message
    with pytest.raises(NoSubmission, match=r"too large|Permission denied"):
        collect(run.work)
    assert not stored(run.snapshots)


def test_limits_of_a_harness_and_what_they_met(run: RunFolder) -> None:
    program = "held = []\nwhile True: held.append(bytearray(b'x') * (8 << 20))"
    played = play(python(program, limits={"memory_mib": 128, "workspace_files": 50}), run)
    assert (played.agent_status, played.exit_code) == ("crashed", 137)
    assert "128 MiB" in played.limits["memory"] and "50 files" in played.limits["workspace"]
    assert re.search(r"the sandbox reports: its (memory|processes) .*128 MiB|more than 128", played.message)


def test_files_that_cannot_be_kept_are_named_and_harmless(run: RunFolder) -> None:
    program = """
        import socket
        for name in ("\\x1b[2J", "\\n", "plain"):
            socket.socket(socket.AF_UNIX).bind(name)
        open("solution.py", "w").write("x = 1")
    """
    if os.geteuid() != 0:
        pytest.skip("only root's workspaces are copied")
    played = play(python(program + '    print(\'{"type": "end"}\')'), run)
    assert played.agent_status == "complete"
    assert "3 of the workspace's files could not be kept, among them " in played.message and played.message.isprintable()
    (told,) = (event for event in run_folder.read_events(run) if event["kind"] == "not_kept")
    assert told["count"] == 3 and all(name.endswith("(a socket or a device)") for name in told["first"])
    assert collect(run.work).source == b"x = 1"


@pytest.mark.slow
def test_snapshots_carry_their_times(run: RunFolder) -> None:
    played = play(
        python("import time\nfor n in range(3):\n    open('solution.py', 'w').write(f'x = {n}')\n    time.sleep(1.4)\n" + DONE),
        run,
    )
    assert played.snapshots == 3
    kept = stored(run.snapshots)
    assert [item.path.read_text() for item in kept] == ["x = 0", "x = 1", "x = 2"]
    assert all(0.5 < later.at_s - earlier.at_s < 3 for earlier, later in itertools.pairwise(kept))


PARENT = """
import sys
from pathlib import Path
sys.path[:0] = [{tests!r}, {root!r}]
from records import cell
from sessions import agent, play
from arena.results import run_folder
with run_folder.create(cell(), manifest={{}}, root=Path({runs!r})) as made:
    play(agent('sh', '-c', 'echo >beat; echo up; while :; do sleep 0.02; done', {runs!r} + '/agent'), made, budget_s=120)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_arena_that_is_ended_leaves_an_interrupted_run(number: signal.Signals, tmp_path: Path) -> None:
    """Killed or interrupted, it leaves a run that is listed as interrupted, and no process."""
    here = Path(__file__).parent
    program = PARENT.format(tests=str(here.parent), root=str(here.parents[1]), runs=str(tmp_path))
    with command.interruptible_children():
        started = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
    with started as process:
        command.until(lambda: any(path.stat().st_size for path in tmp_path.glob("*/agent/stdout.jsonl")), "the agent")
        assert [state.state for state in run_folder.list_runs(tmp_path)] == ["running"]
        assert command.alive(f"{tmp_path}/agent")
        process.send_signal(number)
        assert process.stderr is not None
        said = process.stderr.read()
    assert (b"KeyboardInterrupt" in said) == (number == signal.SIGINT)
    assert [state.state for state in run_folder.list_runs(tmp_path)] == ["interrupted"]
    command.until(lambda: not command.alive(f"{tmp_path}/agent"), "the end of the box", limit_s=1)
    # Interrupted, arena still brings the workspace home; killed, it keeps the snapshots only.
    assert bool(list(tmp_path.glob("*/work/beat"))) == (number == signal.SIGINT or os.geteuid() != 0)


# ---------------------------------------------------------------- the built-in harness


def built_in(spec: str) -> SelectedModel:
    return find_model(f"builtin/{spec}")


@pytest.fixture
def home(tmp_path: Path) -> dict[str, Path]:
    given = folders(tmp_path)
    solutions = given["problem_folder"] / "solutions"
    (solutions / "cheat_skip.py").write_text("# SKIP é\r\n")
    (solutions / "naive.py").write_text("# NAIVE\n")
    (given["kit_folder"] / "check.py").write_text(
        "import sys\nprint(open('solution.py').read())\nprint('\\x1b[1m')\nsys.exit(5)\n"
    )
    return given


def test_two_solutions_are_played_one_after_the_other(home: dict[str, Path], tmp_path: Path) -> None:
    played = replay.steps(built_in("climb"), home["problem_folder"], "cpu", tmp_path)
    assert played is not None
    steps = json.loads(played)["steps"]
    check = {"run": ["python", "check.py"]}
    assert [step.get("text", step) for step in steps] == ["# NAIVE\n", check, "# ORACLE\n", check]


@pytest.mark.parametrize(("spec", "text"), [("oracle", "# ORACLE\n"), ("naive", "# NAIVE\n"), ("cheat/skip", "# SKIP é\r\n")])
def test_a_solution_is_played(spec: str, text: str, run: RunFolder, home: dict[str, Path]) -> None:
    prompt = run_folder.fill_workspace(run, problem(), "cpu", problem().shapes["cpu"], "some CPU", None, **home)
    played = play(
        built_in(spec), run, prompt=prompt, replay=replay.steps(built_in(spec), home["problem_folder"], "cpu", run.folder.parent)
    )
    assert (played.agent_status, played.exit_code, played.snapshots) == ("complete", 0, 1), played.message
    assert collect(run.work).source == text.encode()
    events = [json.loads(line) for line in (run.agent / "stdout.jsonl").read_text().splitlines()]
    assert [event["type"] for event in events if event["type"] != "output"] == ["start", "write", "run", "ran", "end"]
    assert next(event["exit_code"] for event in events if event["type"] == "ran") == 5, "check.py's verdict changes nothing"
    assert played.events == len(events)
    steps = [json.loads(line) for line in run.trajectory.read_text().splitlines()]
    assert [step["kind"] for step in steps] == ["call", "result", "call", "result", "end"]
    assert (steps[0]["input"], steps[1]["ok"]) == ({"path": "solution.py", "text": text}, True)
    assert (steps[2]["input"], steps[3]["ok"]) == ({"command": "python check.py"}, False)
    assert text.strip() in steps[3]["output"]
    assert played.clock_offset_s is not None and 0 <= played.clock_offset_s < 5


def test_nop(run: RunFolder, home: dict[str, Path]) -> None:
    played = play(built_in("nop"), run, replay=replay.steps(built_in("nop"), home["problem_folder"], "cpu", run.folder.parent))
    assert (played.agent_status, played.events, played.snapshots) == ("complete", 2, 0)
    with pytest.raises(NoSubmission):
        collect(run.work)


def test_replay(run: RunFolder, home: dict[str, Path], tmp_path: Path) -> None:
    first = python(
        "import time\nfor n in range(3):\n    open('solution.py', 'w').write(f'x = {n}')\n    time.sleep(1.4)\n" + DONE
    )
    play(first, run)
    spec = f"replay/{run.run_id}"
    with run_folder.create(cell(model=spec), manifest={}, root=run.folder.parent) as again:
        played = play(
            built_in(spec), again, replay=replay.steps(built_in(spec), home["problem_folder"], "cpu", run.folder.parent)
        )
        assert played.agent_status == "complete", played.message
        assert collect(again.work).source == b"x = 2"
        before, after = ([item.at_s for item in stored(made.snapshots)] for made in (run, again))
        assert len(before) == len(after) == 3
        assert after[-1] - after[0] == pytest.approx(before[-1] - before[0], abs=1.5)


def test_unknown_cheats_and_runs_are_refused(run: RunFolder, home: dict[str, Path]) -> None:
    """Nor does a name lead out of the folder: `../naive` is no cheat."""
    root = run.folder.parent
    with pytest.raises(UsageError, match=r"unknown cheat of add 'skyp': did you mean 'skip'\? \(known: skip\)"):
        replay.steps(built_in("cheat/skyp"), home["problem_folder"], "cpu", root)
    for outside in ("../naive", "skip/../../reference"):
        with pytest.raises(UsageError, match="known: skip"):
            replay.steps(built_in("cheat/skip")._replace(argument=outside), home["problem_folder"], "cpu", root)
    with pytest.raises(UsageError, match=r"unknown run with stored file writes 'x' \(known: none\)"):
        replay.steps(built_in("replay/x"), home["problem_folder"], "cpu", root)
    (home["problem_folder"] / "solutions" / "oracle.py").unlink()
    with pytest.raises(DataError, match=r"solutions: there is no oracle\.py"):
        replay.steps(built_in("oracle"), home["problem_folder"], "cpu", root)
    assert replay.steps(agent("true"), home["problem_folder"], "cpu", root) is None


def test_the_shipped_harness_is_complete() -> None:
    entry = catalog.harness("builtin")
    assert set(entry.models) == {"oracle", "naive", "climb", "nop", "cheat/*", "replay/*"}
    assert all((paths.harnesses() / file).is_file() for file in entry.files.values())
    assert os.fspath(paths.PACKAGE) not in (paths.harnesses() / "builtin.py").read_text()


# ---------------------------------------------------------------- the end of the session


LATE = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("solution.py", "w").write("x = 'in time'\\n")
print("{}", flush=True)
time.sleep(3)
open("solution.py", "w").write("x = 'in the grace'\\n")
time.sleep(60)
"""


@pytest.mark.slow
def test_what_is_written_in_the_grace_is_not_taken(run: RunFolder) -> None:
    """An agent could otherwise work ten seconds longer than its budget."""
    played = session.play(spec_of(python(LATE), budget_s=2.0, grace_s=3.0), run, "")
    assert played.session.agent_status == "deadline"
    assert played.submission is not None and played.submission.source == b"x = 'in time'\n"
    assert [item.path.read_text() for item in stored(run.snapshots)] == ["x = 'in time'\n"]
    assert collect(run.work).source == b"x = 'in the grace'\n", "the workspace is kept as it was in the end"


@pytest.mark.slow
def test_what_is_written_last_in_the_budget_is_taken(run: RunFolder) -> None:
    """Also when the agent ends by itself, or its helper still works while it lingers."""
    writes = "open('solution.py', 'w').write('x = 1')\n"
    played = session.play(spec_of(python(DONE + writes)), run, "")
    assert played.submission is not None and played.submission.source == b"x = 1"
    lingers = DONE + "import time\ntime.sleep(1)\n" + writes.replace("1", "2") + "time.sleep(60)"
    played = session.play(spec_of(python(lingers), linger_s=2.0), run, "")
    assert played.submission is not None and played.submission.source == b"x = 2"
    played = session.play(spec_of(python("import os\nos.remove('solution.py')\n" + DONE)), run, "")
    assert (played.submission, played.reason) == (None, "there is no solution.py")


class Impatient:
    """The bwrap backend, with a shorter wait for the end of a killed sandbox."""

    def __init__(self, proof_s: float) -> None:
        self.proof_s = proof_s

    @contextmanager
    def run(self, spec: SandboxSpec) -> Iterator[RunningSandbox]:
        with bwrap.run(spec) as running:
            running.proof_s = self.proof_s
            yield running

    def missing(self) -> str | None:
        return None


@pytest.mark.slow
@pytest.mark.parametrize(("event", "status"), [("end", "complete"), ("other", "deadline")])
def test_a_slow_death_does_not_lose_the_session(event: str, status: str, run: RunFolder) -> None:
    """The kernel frees page tables for as long as the agent likes: that must not take the agent's run from the record."""
    slow = SLOW_DEATH.replace('"ready"', repr(json.dumps({"type": event})))
    # Not even the first signal ends it: on a busy machine the tables could be gone before the second.
    ignore = "import signal, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)"
    program = f"{ignore}\nsys.argv[1:] = ['60']\nopen('solution.py', 'w').write('x = 1')\n{slow}"
    spec = replace(spec_of(python(program), budget_s=15.0, grace_s=0.1, linger_s=0.1), sandbox=Impatient(0.001))
    played = session.play(spec, run, "")
    assert played.session.agent_status == status
    assert played.submission is not None and played.submission.source == b"x = 1"
    assert "is not empty 0.001 s after its kill" in played.session.message
    assert collect(run.work).source == b"x = 1", "its workspace is kept too"
    assert [entry["kind"] for entry in run_folder.read_events(run)][-2:] == ["clean_up_failed", "session_ended"]


FAILED = JudgeFailed(
    problem="add",
    problem_digest="",
    hardware="cpu",
    message="other processes compute on GPU 0 (pid 7)",
    timings=Timings(build_s=0, check_s=0, benchmark_s=0, total_s=1),
)


@pytest.mark.parametrize(("limit_s", "events"), [(60.0, []), (0.0, ["left_dying"])])
def test_a_score_waits_for_a_slow_death(limit_s: float, events: list[str], run: RunFolder) -> None:
    """Nothing is measured beside a dying sandbox, but for one that never ends: then the run would have no score at all."""
    said: list[Progress] = []
    with bwrap.run(SandboxSpec("worker", ("python", "-c", SLOW_DEATH, "60"))) as running:
        assert isinstance(running, SandboxHandle)
        running.stdout.readline()
        running.proof_s = 0.001
        with pytest.raises(SandboxError, match="is not empty"):
            running.close()
        await_end(run, said.append, limit_s)
        await_dying(0.0)
        assert _left_dying(run) == bool(events)
        command.until(lambda: not Path(f"/proc/{running.pid}").exists(), "its end", limit_s=60)
    assert not _left_dying(run), "a failure of the judge is the machine's own, now that they have ended"
    assert [progress.phase for progress in said] == ["dying"]
    assert [entry["kind"] for entry in run_folder.read_events(run)][1:] == events
    missing = FAILED.model_copy(update={"verdict": "missing"})
    assert [_charged(score).verdict for score in (FAILED, missing)] == ["timed_out", "missing"]


def test_undying_processes_may_have_names_of_any_bytes(run: RunFolder) -> None:
    """Their names are the agent's. One of another machine, or a zombie, holds nothing of this one."""
    program = 'import ctypes, time; ctypes.CDLL(None).prctl(15, b"\\xff\\xfe) Z"); print(1, flush=True); time.sleep(60)'
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        names = [tempdirs.owner(child.pid), "1-2-3"]
        run.event("left_dying", message="", processes=names)
        assert [tempdirs.ended(name) for name in names] == [False, True]
        assert _left_dying(run)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert tempdirs.alive(names[0]) and tempdirs.ended(names[0]), "a zombie"
        assert not _left_dying(run)
