"""The two output streams, colours and the progress line."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from command import RUN, Arena, needs_sandbox

from arena.sandboxes import bwrap

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
def test_commands_run_without_torch(words: tuple[str, ...], arena: Arena) -> None:
    if words == ("doctor",) and (reason := bwrap.missing()):
        pytest.skip(reason)
    done = arena.python(WITHOUT_TORCH, *words)
    assert done.code == 0, done.err


@pytest.mark.slow
@needs_sandbox
def test_judge_without_torch_says_what_to_install(arena: Arena) -> None:
    done = arena.python(WITHOUT_TORCH, *RUN)
    assert done.code == 2
    assert done.err.splitlines()[-1] == "arena: the judge needs the package torch, which is not installed: `pip install torch`"
    assert not arena.runs


INTERRUPTED = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
except KeyboardInterrupt:
    raise ImportError("cannot load module more than once per process") from None
"""


@pytest.mark.parametrize(
    ("package", "says"),
    [
        ("rich_click", "arena: interrupted"),
        ("torch", "arena: interrupted; `arena list runs` shows what was left"),
    ],
)
def test_an_interrupt_during_an_import_shows_no_traceback(package: str, says: str, shared: Arena, tmp_path: Path) -> None:
    """Some packages, numpy among them, turn it into another error."""
    (tmp_path / f"{package}.py").write_text(INTERRUPTED)
    (tmp_path / "solution.py").write_text("def solution(x, y): ...\n")
    words = ("score", str(tmp_path / "solution.py"), "--problem", "kahan_softmax", "--hardware", "cpu")
    done = shared(*words, env={"PYTHONPATH": f"{tmp_path}:{shared.tree}"})
    assert (done.code, done.err.splitlines()[-1]) == (130, says)
    assert "Traceback" not in done.err


@pytest.mark.slow
@pytest.mark.parametrize("what", ["problems", "models", "harnesses", "routes", "hardware", "runs"])
def test_list_prints_a_table_and_json(what: str, shared: Arena) -> None:
    rows = shared.json("list", what)
    done = shared("list", what)
    assert done.code == 0
    if what == "runs":
        assert (rows, done.out, done.err) == ([], "", "no runs\n")
    else:
        lines = done.out.splitlines()
        assert done.err == "" and len(lines) == len(rows) + 1  # no line is folded where no terminal says how wide it is
        assert re.split(r"\s{2,}", lines[0].strip()) == list(rows[0])
        assert [row["name"] for row in rows if row["name"] not in done.out] == []


def test_closed_stdout_ends_the_command_quietly(shared: Arena) -> None:
    with shared.start("schema") as process:
        assert process.stdout is not None and process.stderr is not None
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


@pytest.mark.slow
def test_no_color_turns_colours_off(shared: Arena) -> None:
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


@pytest.mark.slow
@needs_sandbox
def test_progress_redraws_one_line_on_a_terminal(arena: Arena) -> None:
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


@pytest.mark.slow
@needs_sandbox
@pytest.mark.parametrize("env", [{}, {"FORCE_COLOR": "1"}], ids=["plain", "FORCE_COLOR"])
def test_progress_prints_plain_lines_without_a_terminal(env: dict[str, str], arena: Arena) -> None:
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
