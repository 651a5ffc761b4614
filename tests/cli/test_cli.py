"""The command line: what it says, where it says it, and how it ends. Each test starts the real command."""

import fcntl
import json
import os
import pty
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import ROOT, Arena, copy, killed

from arena.sandboxes import bwrap

COMMANDS = (
    "run",
    "score",
    "check",
    "baseline",
    "sandbox",
    "list",
    "show",
    "annotate",
    "leaderboard",
    "doctor",
    "calibrate",
    "schema",
)
RUN = ("run", "--problem", "paged_attention", "--hardware", "cpu")
KNOWN = ", ".join(sorted(path.parent.name for path in (ROOT / "problems").glob("*/problem.yaml")))
UNNAMED = f"name the problems to check, or --all (known: {KNOWN})"
boxed = pytest.mark.skipif(bwrap.missing() is not None, reason=f"sandbox: {bwrap.missing()}")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Arena:
    """For tests that change nothing."""
    return copy(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    return copy(tmp_path)


@pytest.fixture(scope="session")
def nothing_done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one run that left nothing to score."""
    pytest.importorskip("torch")
    if reason := bwrap.missing():
        pytest.skip(reason)
    made = copy(tmp_path_factory.mktemp("nothing"))
    assert made(*RUN, "--model", "nop").code == 0
    return made.home


@pytest.fixture
def tested(arena: Arena, nothing_done: Path) -> Arena:
    """With that run in its home, which may be moved: nothing in it holds a path from the root."""
    shutil.copytree(nothing_done, arena.home)
    return arena


# ---------------------------------------------------------------- help and refusals


def test_help(shared: Arena) -> None:
    overview = shared("--help")
    assert (overview.code, overview.err) == (0, "")
    assert [name for name in COMMANDS if f" {name} " not in overview.out] == []
    # One process for all: starting eleven takes longer than all else that they do.
    every = "import sys; from arena.cli import cli; [cli([name, '-h'], 'arena', standalone_mode=False) for name in sys.argv[1:]]"
    done = shared.python(every, *COMMANDS)
    assert (done.code, done.err) == (0, "")
    assert [name for name in COMMANDS if f"Usage: arena {name}" not in done.out] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "-p", "paged_atention"), "unknown problem 'paged_atention': did you mean 'paged_attention'? (known: paged_att"),
        ((*RUN, "-m", "orcle"), "unknown model 'orcle': did you mean 'oracle'? (known: oracle, "),
        ((*RUN, "-m", "builtin/noop"), "unknown model 'builtin/noop'"),
        (
            (*RUN, "-m", "cheat/exit_zer"),
            "unknown cheat of paged_attention 'exit_zer': did you mean 'exit_zero'? (known: exit_zero, ",
        ),
        ((*RUN, "-m", "replay/x"), "unknown run with stored file writes 'x' (known: none)"),
        ((*RUN, "--hardware", "H20"), "unknown hardware 'H20': did you mean 'h200'? (known: h200, "),
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
def test_what_does_not_exist_is_answered_with_what_does(words: tuple[str, ...], said: str, shared: Arena) -> None:
    told = shared.refused(*words)
    assert told.startswith(said)
    assert "\n" not in told
    assert not shared.runs


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
def test_a_broken_file_of_the_catalogue_names_each_place(file: str, words: tuple[str, ...], arena: Arena) -> None:
    arena.edit(file, lambda text: re.sub("schema_version: .\n", "schema_version: 3\nextra: 1\n", text, count=1))
    first, second = arena.refused(*words).splitlines()
    path = arena.tree / file
    assert first.startswith(f"{path}:1:17: schema_version: ")
    assert second.startswith(f"{path}:2:1: extra: unknown key 'extra'")


def test_without_bwrap(shared: Arena, tmp_path: Path) -> None:
    path = {"PATH": str(tmp_path)}
    told = shared.refused(*RUN, env=path)
    assert told.startswith("bwrap is not on PATH; install it: `apt-get install bubblewrap`")
    done = shared("doctor", "--json", env=path)
    assert done.code == 2
    missing = {check["name"] for check in json.loads(done.out) if check["state"] == "missing"}
    assert missing == {"sandbox", "compiler"}


# ---------------------------------------------------------------- streams and colours

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from arena.cli import main; main()"


@pytest.mark.parametrize(
    "words",
    [
        *(("list", what) for what in ("problems", "models", "harnesses", "hardware", "runs")),
        ("leaderboard",),
        ("doctor",),
        ("schema",),
    ],
    ids=" ".join,
)
def test_torch_is_not_imported_by(words: tuple[str, ...], arena: Arena) -> None:
    if words == ("doctor",) and bwrap.missing():
        pytest.skip(bwrap.missing())
    done = arena.python(WITHOUT_TORCH, *words)
    assert done.code == 0, done.err


@boxed
def test_a_judge_without_torch_says_what_to_install(arena: Arena) -> None:
    done = arena.python(WITHOUT_TORCH, *RUN)
    assert done.code == 2
    assert done.err.splitlines()[-1] == "arena: the judge needs the package torch, which is not installed: `pip install torch`"
    assert not arena.runs


@pytest.mark.parametrize("what", ["problems", "models", "harnesses", "routes", "hardware", "runs"])
def test_lists_for_people_and_for_programs(what: str, shared: Arena) -> None:
    rows = shared.json("list", what)
    done = shared("list", what)
    assert (done.code, done.out) == (0, "")
    if what == "runs":
        assert (rows, done.err) == ([], "no runs\n")
    else:
        lines = done.err.splitlines()
        assert re.split(r"\s{2,}", lines[0].strip()) == list(rows[0])
        assert [row["name"] for row in rows if row["name"] not in done.err] == []


def test_a_reader_that_has_seen_enough(shared: Arena) -> None:
    with shared.start("schema") as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 0)


def test_data_is_utf_8_whatever_the_locale(shared: Arena) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "arena", "schema", "harness"],
        env=shared.environment(LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0"),
        capture_output=True,
        check=True,
    )
    assert json.loads(shown.stdout.decode())["title"] == "Harness"


def on_a_terminal(arena: Arena, *words: str, columns: int = 80, **env: str) -> tuple[int, str]:
    """(exit code, what a terminal of that width received on stderr)."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    with arena.start(*words, env={"TERM": "xterm-256color"} | env, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        received = b""
        try:
            while piece := os.read(ours, 1 << 16):
                received += piece
        except OSError:  # how the end of a terminal reads
            pass
        os.close(ours)
    return process.returncode, received.decode()


def test_colours_and_no_color(shared: Arena) -> None:
    _, coloured = on_a_terminal(shared, "show", "x")
    _, plain = on_a_terminal(shared, "show", "x", NO_COLOR="1")
    assert "\x1b[1;31marena:" in coloured
    assert not re.search(r"\x1b\[[0-9;]*(3[0-9]|4[0-9]|9[0-7])m", plain)
    assert "unknown run 'x'" in plain


SAYS = r"""
import json, time
print(json.dumps({"type": "x", "text": "[bold]x[/bold] [/nope] :warning: \x1b[2J\x07 " + "long " * 50}), flush=True)
time.sleep(1.5)
print('{"type": "end"}', flush=True)
"""


@boxed
def test_a_live_line_on_a_terminal(arena: Arena) -> None:
    pytest.importorskip("torch")
    model = arena.harness("speaker", "python", "-c", SAYS)
    code, received = on_a_terminal(arena, *RUN, "--model", model)
    assert code == 0, received
    assert "\x1b[2K" in received, "the line is redrawn"
    assert "[bold]x[/bold] [/nope] :warning: [2J long" in received
    assert not re.search(r"\x1b\[2J|\x07|⚠", received)
    shown = [line for line in re.split(r"\r|\n", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", received)) if "long long" in line]
    assert shown
    assert max(map(len, shown)) <= 80
    assert all(line.endswith("…") for line in shown)


@boxed
@pytest.mark.parametrize("env", [{}, {"FORCE_COLOR": "1"}], ids=["plain", "FORCE_COLOR"])
def test_plain_lines_elsewhere(env: dict[str, str], arena: Arena) -> None:
    pytest.importorskip("torch")
    model = arena.harness("speaker", "python", "-c", SAYS)
    done = arena(*RUN, "--model", model, env=env)
    assert done.code == 0
    assert "\x1b[2K" not in done.err
    assert "\r" not in done.err
    lines = [line for line in done.err.splitlines() if "agent    0:0" in line or "agent   \x1b[0m 0:0" in line]
    assert len(lines) == 1, "one line for each phase, not one for each redraw"
    if not env:
        assert "\x1b" not in done.err


# ---------------------------------------------------------------- records


def test_show(tested: Arena) -> None:
    [annotation] = tested.annotations
    shown = tested.json("show", annotation.stem)
    assert (shown["run_id"], shown["score"]["verdict"]) == (annotation.stem, "missing")
    done = tested("show", annotation.stem)
    assert (done.code, done.out) == (0, "")
    assert "nop (builtin) on paged_attention v1, cpu, budget 2700 s" in done.err
    assert "verdict missing: there is no solution.py" in done.err
    told = tested.refused("show", annotation.stem[:-4] + "ffff")
    assert f"did you mean '{annotation.stem}'?" in told


def test_show_a_run_without_a_result(tested: Arena) -> None:
    (tested.runs[0] / "result.yaml").unlink()
    tested.annotations[0].unlink()
    run = tested.runs[0].name
    shown = tested.json("show", run)
    assert (shown["state"], shown["cell"]["model"], shown["events"][0]["kind"]) == ("interrupted", "nop", "created")
    assert f"{run} interrupted" in tested("show", run).err
    assert (
        tested.refused("annotate", run, "-v", "clean", "-s", "x") == f"run {run} is interrupted: it has no annotation to review"
    )


def test_runs_of_a_fresh_clone_are_listed_by_their_annotations(tested: Arena) -> None:
    shutil.rmtree(tested.home / "workspaces")
    [row] = tested.json("list", "runs")
    assert (row["run"], row["state"], row["verdict"]) == (tested.annotations[0].stem, "committed", "missing")


def test_annotate(tested: Arena) -> None:
    [annotation] = tested.annotations
    run, machine = annotation.stem, annotation.read_text()
    review = ("-v", "interesting", "-s", "[red]It[/red] did\x1b[2J nothing", "-i", "Give it work.")
    quote = ("-q", "agent/stdout.jsonl:1-2", "-l", "all of it")
    done = tested.json("annotate", run, *review, *quote)["review"]
    assert done["quotes"][0]["text"] == (tested.runs[0] / "agent" / "stdout.jsonl").read_text().rstrip("\n")
    assert annotation.read_text().startswith(machine.partition("review:")[0])
    assert "interesting" in (tested.home / "leaderboard" / "leaderboard.json").read_text()
    shown = tested("show", run).err
    assert "review interesting: [red]It[/red] did[2J nothing" in shown
    assert "agent/stdout.jsonl:1-2 all of it" in shown
    assert "has lines 1 to 2" in tested.refused(
        "annotate", run, "-v", "clean", "-s", "x", "-q", "agent/stdout.jsonl:9", "-l", "y"
    )
    assert "give one --label with each --quote" in tested.refused("annotate", run, "-v", "clean", "-s", "x", "-q", "score.json:1")
    board = tested.board()
    assert tested("leaderboard").code == 0
    assert tested.board() == board
    assert tested.json("leaderboard") == json.loads(board["leaderboard.json"])


def test_schemas_are_current(shared: Arena, tmp_path: Path) -> None:
    assert shared("schema", "--out", str(tmp_path / "schemas")).code == 0
    fresh = {path.name: path.read_text() for path in (tmp_path / "schemas").iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / "docs" / "schemas").iterdir()}
    assert fresh == kept, "run `arena schema --out docs/schemas`"
    one = shared("schema", "problem")
    assert json.loads(one.out) == json.loads(kept["problem.json"]) == json.loads(shared("schema").out)["problem"]
    assert "name" not in json.loads(kept["problem.json"])["required"]


# ---------------------------------------------------------------- the judge without an agent


@boxed
def test_score_a_file_that_is_none(arena: Arena, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    link, broken = tmp_path / "link.py", tmp_path / "real" / "broken.py"
    broken.parent.mkdir()
    broken.write_text("def f(:\n")
    link.symlink_to(broken)
    (tmp_path / "folder").symlink_to(broken.parent)
    problem = ("-p", "paged_attention", "--hardware", "cpu")
    assert arena.json("score", str(broken), *problem)["message"] == "solution.py does not parse: line 1: invalid syntax"
    assert arena.json("score", str(tmp_path / "folder" / "broken.py"), *problem)["verdict"] == "crashed"
    assert arena.json("score", str(broken.parent), *problem)["message"] == "real is a directory; arena takes regular files only"
    done = arena("score", str(link), *problem)
    assert (done.code, done.out) == (0, "")
    assert "verdict missing: link.py is a symbolic link; arena takes regular files only" in done.err


@boxed
def test_score_says_when_the_judge_failed(arena: Arena) -> None:
    pytest.importorskip("torch")
    arena.edit("problems/paged_attention/hidden.py", lambda text: text.replace("INPUT_CLASSES", "MOODS"))
    told = arena.json("score", str(arena.solution("fine", "x = 1\n")), "-p", "paged_attention", "--hardware", "cpu", code=1)
    assert told["verdict"] == "judge_failed"


@pytest.mark.slow
def test_calibrate(shared: Arena, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = shared("calibrate", "--hardware", "cpu", "--json", env={"XDG_CACHE_HOME": str(tmp_path)})
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["bandwidth_gb_s"] > 0
    assert set(found["tflops"]) == {"fp32", "bf16"}
    assert len(list((tmp_path / "arena" / "calibration").iterdir())) == 1


# ---------------------------------------------------------------- the sandbox and the machine


@boxed
def test_sandbox_passes_on_both_streams_and_the_exit_code(shared: Arena) -> None:
    done = shared("sandbox", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert done == (7, "out\n", "err\n")
    assert shared("sandbox", "sh", "-c", "kill -9 $$").code == 137
    assert shared("sandbox", "no-such-command") == (127, "", "no-such-command: not found in the sandbox\n")


@boxed
def test_sandbox_takes_no_input(shared: Arena) -> None:
    with tempfile.TemporaryFile("w+") as typed:
        typed.write("secret\n")
        typed.seek(0)
        assert shared("sandbox", "cat", stdin=typed) == (0, "", "")


@boxed
def test_sandbox_leaves_the_command_its_own_options(shared: Arena) -> None:
    assert shared("sandbox", "echo", "-h", "--json", "--kind", "--").out == "-h --json --kind --\n"
    assert shared("sandbox", "--kind", "worker", "--", "printf", "%s\\n", "--help").out == "--help\n"


@boxed
def test_sandbox_of_each_kind(shared: Arena) -> None:
    write = ("sh", "-c", "touch /workspace/x && echo wrote")
    assert shared("sandbox", *write).out == "wrote\n"
    done = shared("sandbox", "--kind", "worker", *write)
    assert done.code != 0
    assert "Read-only file system" in done.err
    filled = shared("sandbox", "--problem", "paged_attention", "ls").out.split()
    assert set(filled) == {"PROMPT.md", "benchmark.py", "check.py", "problem.json", "reference.py"}


@boxed
def test_sandbox_with_a_list_of_hosts_tells_what_was_asked_for(shared: Arena) -> None:
    ask = "import os, urllib.request as r; print(os.environ['https_proxy']); r.urlopen('https://evil.example/')"
    done = shared("sandbox", "--network", "allow", "--allow", "good.example", "--", "python", "-c", ask)
    assert (done.code, done.out) == (1, "http://127.0.0.1:3128\n")
    assert "Tunnel connection failed: 403 Forbidden" in done.err
    assert done.err.endswith("\nrefused evil.example:443 not on the allowlist\n")


@boxed
def test_what_a_killed_sandbox_left_goes_with_the_next(shared: Arena, tmp_path: Path) -> None:
    words = ("sandbox", "--network", "allow", "--allow", "good.example", "--", "sh", "-c", "echo up; exec sleep 60")
    with killed(shared.start(*words, env={"TMPDIR": str(tmp_path)})) as arena:
        assert arena.stdout.readline() == "up\n"
        arena.kill()
        arena.wait()
    assert len(list(tmp_path.iterdir())) == 2, "its workspace, and the proxy's socket"
    assert shared("sandbox", "true", env={"TMPDIR": str(tmp_path)}).code == 0
    assert list(tmp_path.iterdir()) == []


@boxed
def test_sandbox_shows_nothing_of_the_host(shared: Arena) -> None:
    look = "cat /proc/1/environ; ls /home; cat /etc/shadow; find / -name '*.yaml' 2>/dev/null; env"
    done = shared("sandbox", "--", "sh", "-c", look, env={"HOST_SECRET": "s3cret"})
    assert "s3cret" not in done.out
    assert str(shared.tree) not in done.out + done.err
    assert not re.search(r"problem\.yaml|builtin\.yaml|cpu\.yaml|h200", done.out)
    assert "root:" not in done.out


@pytest.fixture
def open_tree() -> Iterator[Arena]:
    """A tree and a home that every user may enter, the home belonging to nobody."""
    with tempfile.TemporaryDirectory(prefix="arena-test-") as folder:
        arena = copy(Path(folder))
        arena.home.mkdir()
        os.chown(arena.home, 65534, 65534)
        Path(folder).chmod(0o755)
        yield arena


@boxed
@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as a plain user already")
def test_a_plain_user(open_tree: Arena) -> None:
    pytest.importorskip("torch")
    plain = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", sys.executable]
    env = open_tree.environment(HOME=str(open_tree.home))
    env.pop("XDG_CACHE_HOME", None)

    def ended(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*plain, *words], env=env, cwd=open_tree.home, capture_output=True, text=True)

    itself = "import os, sys, pydantic; os.execv(sys.executable, [sys.executable, '-c', ''])"
    if shutil.which("setpriv") is None or ended("-c", itself).returncode:
        pytest.skip(f"needs setpriv, and {sys.executable} in a place that every user may enter")
    for words in (("doctor",), ("sandbox", "true"), (*RUN, "--model", "nop"), ("list", "runs")):
        done = ended("-m", "arena", *words)
        assert done.returncode == 0, done.stderr
    assert open_tree.annotations[0].stat().st_uid == 65534
    assert stat.S_ISREG(open_tree.annotations[0].stat().st_mode)


# ---------------------------------------------------------------- a plain install


@boxed
@pytest.mark.slow
def test_a_wheel_outside_a_checkout(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("hatchling", reason="hatchling is not installed (scripts/setup test installs it)")
    source, site = tmp_path / "source", tmp_path / "site"
    kept = shutil.ignore_patterns(".*", "__pycache__", "workspaces", "annotations", "tests", "*.egg-info")
    shutil.copytree(ROOT, source, ignore=kept)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    built = subprocess.run([*pip, "--target", str(site), str(source)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    shutil.rmtree(source)

    arena = Arena(site, tmp_path / "home")
    assert arena("doctor").code == 0
    [annotation] = arena.json(*RUN, "--model", "cheat/exit_zero")
    assert (annotation["score"]["verdict"], annotation["session"]["agent_status"]) == ("crashed", "complete")
    assert json.loads((arena.home / "leaderboard" / "leaderboard.json").read_text())["trials"] == 1
    seen = arena("sandbox", "--", "sh", "-c", "find / -name 'problem.yaml' -o -name 'hidden.py' -o -name 'h200.yaml' 2>/dev/null")
    assert seen.out == ""
